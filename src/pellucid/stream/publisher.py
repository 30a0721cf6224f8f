"""Telling an engine's journal to whoever watches, from inside the engine's process and at no cost to it.

Two threads meet here. The *engine's thread* only appends to a queue (`publish`, `give`); one daemon thread, the
*teller*, does all the rest: it lets watchers in, numbers and encodes the steps, and writes to the sockets.

**Why no step is lost and none told twice.** The engine changes what `picture` shows only while it holds ``lock``,
and before it releases the lock it has published every act of that change, if ``watching`` was set by then; the
picture that it gives comes last.

1. *The order of the queue is the order of events.* It has one writer at a time (whoever holds ``lock``), and the
   teller alone reads it. Steps get their ``seq`` when they are read, so there cannot be a gap.
2. *A picture stands in the queue between the steps that it holds and those that it does not*, whoever made it: the
   engine appends it after the steps of its turn; the teller, when the engine rests, makes one while holding
   ``lock`` and appends it likewise. A watcher that needs a picture gets the next one that is read, no step before
   it and every step after it.
3. *Nobody listened before.* For a first watcher the teller sets ``watching``, then clears the queue of what an
   earlier watcher left behind. Whatever is appended after that was followed by steps that saw ``watching`` set. A
   step that was cleared, or not published because ``watching`` came a moment too late, belongs to a turn that
   began before any picture for this watcher was made, so that picture holds it.
4. *One picture for one wish.* The teller sets ``wants_picture`` only when none is on its way (``_asked``); whoever
   makes the picture clears it first and appends then. The teller asks again under ``lock`` whether it is still
   wanted. At worst, after the last watcher has gone in the middle of it all, a picture is made for nobody.
"""

from __future__ import annotations

import atexit
import os
import selectors
import socket
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from pellucid import log
from pellucid.kv.acts import AnyAct
from pellucid.kv.veil import Show, Veil, plainly, veil_act, veil_snapshot
from pellucid.stream import doorman, metrics
from pellucid.stream.frames import frame
from pellucid.stream.listener import BACKLOG, is_ours, listen_locally, listen_on, parse_address
from pellucid.stream.messages import End, Hello, Picture, Step, Watched
from pellucid.stream.watcher import Phase, Watcher

TICK = 0.05
"""Seconds between two looks at the queue while somebody watches: the engine's thread wakes nobody."""

REST = 0.1
"""After so many seconds without a turn of the engine the teller makes the picture itself."""

CHUNK = 1 << 18
MOST_WATCHERS = 64
GOODBYE = 0.3
"""Seconds that `close` takes at most to send what is left."""

_Told = tuple[float, Sequence[AnyAct], tuple[str, ...]]
_publishers: weakref.WeakSet[Publisher] = weakref.WeakSet()


class Publisher:
    """Publishes one engine on a socket of this user, and on a TCP port if ``listen`` (host:port) says so.

    ``picture`` makes a `Picture` of the engine as it is; it is called by whoever holds ``lock``. After every turn,
    still holding the lock, the engine's thread calls `publish`, and then ``publisher.give(picture())`` if
    ``wants_picture``. ``listen`` and ``token`` default to $PELLUCID_LISTEN and $PELLUCID_TOKEN; data-parallel engine
    core ``n`` listens at the n-th port after the one that is given. Identities and namespaces, hashes of what users
    brought along, leave the process under a key that nobody else has, unless ``show_identities``.

    Raises `StreamError` if it cannot open what it should; afterwards nothing raises and nothing waits.
    """

    def __init__(
        self,
        watched: Watched,
        picture: Callable[[], Picture],
        *,
        listen: str | None = None,
        token: str | None = None,
        show_identities: bool = False,
    ) -> None:
        listen = listen or os.environ.get("PELLUCID_LISTEN")
        token = token or os.environ.get("PELLUCID_TOKEN")
        address = parse_address(listen, token) if listen else None
        self.watching = False
        self.wants_picture = False
        self.lock = threading.RLock()
        self.watched = watched
        self._picture = picture
        self._show_as: Show = plainly if show_identities else Veil()
        self._token = token or ""
        self._queue: deque[_Told | Picture] = deque()
        self._hello = frame(Hello(watched))
        self._watchers: list[Watcher] = []
        self._seq = 0
        self._asked: float | None = None  # since when a picture is on its way
        self._closing: str | None = None
        self._pid = os.getpid()
        self.port: int | None = None
        local, self.path = listen_locally(watched.pid, watched.rank)
        self._doors = [local]
        if address:
            try:
                self._doors.append(listen_on(address[0], address[1] + watched.rank if address[1] else 0))
            except BaseException:
                _shut(local, self.path)
                raise
            self.port = self._doors[1].getsockname()[1]
        self._waker, self._alarm = socket.socketpair()
        self._selector = selectors.DefaultSelector()
        for door in (*self._doors, self._alarm):
            self._selector.register(door, selectors.EVENT_READ)
        self._thread = threading.Thread(target=self._run, name="pellucid-publisher", daemon=True)
        self._thread.start()
        _publishers.add(self)
        atexit.register(self.close)

    # -- what the engine's thread calls ------------------------------------------------------------

    def publish(self, time: float, acts: Sequence[AnyAct], violations: tuple[str, ...] = ()) -> None:
        """One turn of the engine, at Unix ``time``, did ``acts``, which nobody changes any more."""
        if self.watching:
            self._queue.append((time, acts, violations))

    def give(self, picture: Picture) -> None:
        """The engine as it is after everything that was published."""
        self.wants_picture = False
        self._queue.append(picture)

    def close(self, reason: str = "the engine's process ended") -> None:
        """Say goodbye and remove the socket; takes a moment, and nothing the second time."""
        if os.getpid() != self._pid or self._closing is not None:
            return
        self._closing = reason
        atexit.unregister(self.close)
        try:
            self._waker.send(b"!")
        except OSError:
            return
        if threading.current_thread() is not self._thread:
            self._thread.join(timeout=2 * GOODBYE)

    # -- the teller ---------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            while self._closing is None:
                self._turn()
            self._drain()
        except Exception as error:  # whatever it is, the engine goes on
            self._closing = f"watching it failed ({type(error).__name__}: {error})"
            log.say(f"this engine can no longer be watched: {type(error).__name__}: {error}")
        finally:
            self.watching = self.wants_picture = False
            self._leave(self._closing or "")

    def _turn(self) -> None:
        before = time.monotonic()
        for key, events in self._selector.select(TICK if self._watchers else None):
            if key.data is not None:
                self._serve(key.data, events)
            elif key.fileobj is not self._alarm:
                self._let_in(key.fileobj)  # type: ignore[arg-type]
        if not self._watchers:
            return
        self._tend(time.monotonic())
        if self.watching:
            self._drain()
        time.sleep(max(0.0, before + TICK / 10 - time.monotonic()))  # a chatty client cannot make this a busy loop

    def _let_in(self, door: socket.socket) -> None:
        """Take in whoever stands at ``door``."""
        for _ in range(BACKLOG):
            try:
                connection, _address = door.accept()
            except BlockingIOError:
                return
            except OSError:  # out of file descriptors, perhaps: the client waits in the backlog
                time.sleep(TICK)
                return
            local = door is self._doors[0]
            room = MOST_WATCHERS if local else MOST_WATCHERS // 2  # strangers do not shut out this user
            if len(self._watchers) < room and (not local or is_ours(connection)):
                self._welcome(connection, Phase.NEEDY if local else Phase.ASKING)
            else:
                connection.close()

    def _welcome(self, connection: socket.socket, phase: Phase) -> None:
        connection.setblocking(False)
        watcher = Watcher(connection, phase, time.monotonic())
        self._watchers.append(watcher)
        self._selector.register(connection, selectors.EVENT_READ, watcher)
        if phase is Phase.NEEDY:
            watcher.say(self._hello)
            self._flush(watcher)

    def _serve(self, watcher: Watcher, events: int) -> None:
        if events & selectors.EVENT_READ:
            try:
                heard = watcher.connection.recv(doorman.LONGEST_REQUEST)
            except BlockingIOError:
                heard = None
            except OSError:
                heard = b""
            if heard is not None:
                self._hear(watcher, heard)
        if events & selectors.EVENT_WRITE and watcher in self._watchers:
            self._flush(watcher)

    def _hear(self, watcher: Watcher, heard: bytes) -> None:
        """A watcher has nothing to say, but for the request with which it comes in over TCP."""
        if not heard or watcher.phase is not Phase.ASKING:
            self._forget(watcher)
            return
        watcher.head += heard
        head, end, _ = bytes(watcher.head).partition(b"\r\n\r\n")
        if not end:
            if len(watcher.head) > doorman.LONGEST_REQUEST:
                self._forget(watcher)
            return
        asked = doorman.read_request(head, self._token)
        if asked.status != 200:
            watcher.say(doorman.answer(asked.status))
            watcher.phase = Phase.LEAVING
        else:
            watcher.phase = Phase.NEEDY
            watcher.wants_metrics = asked.path == "/metrics"
            if not watcher.wants_metrics:
                watcher.say(doorman.answer(200, "application/octet-stream", None) + self._hello)
        self._flush(watcher)

    def _tend(self, now: float) -> None:
        """Ask for a picture if somebody needs one, or make it if the engine rests; show out who only dawdles."""
        for watcher in list(self._watchers):
            if watcher.phase in (Phase.ASKING, Phase.LEAVING) and now - watcher.since > doorman.LONGEST_WAIT:
                self._forget(watcher)
        if self._asked is None:
            # A client that only came for the greeting has gone again after a tick.
            if any(watcher.phase is Phase.NEEDY and now - watcher.since > TICK / 2 for watcher in self._watchers):
                if not self.watching:
                    self.watching = True
                    self._queue.clear()
                self._asked = now
                self.wants_picture = True
        elif self.wants_picture and now - self._asked > REST and self.lock.acquire(blocking=False):
            try:
                if self.wants_picture:
                    self.give(self._picture())
            finally:
                self.lock.release()

    def _drain(self) -> None:
        """Number and encode what stands in the queue now, and hand it to the watchers."""
        data, steps = bytearray(), 0
        for _ in range(len(self._queue)):
            told = self._queue.popleft()
            if not isinstance(told, Picture):
                self._seq += 1
                when, acts, violations = told
                shown = tuple(veil_act(act, self._show_as) for act in acts)
                data += frame(Step(seq=self._seq, time=when, acts=shown, violations=violations))
                steps += 1
            if data and (len(data) > CHUNK or isinstance(told, Picture)):
                self._tell(bytes(data), steps)
                data, steps = bytearray(), 0
            if isinstance(told, Picture):
                self._show(told)
        if data:
            self._tell(bytes(data), steps)

    def _tell(self, data: bytes, steps: int) -> None:
        for watcher in list(self._watchers):
            watcher.tell(data, steps)
            self._flush(watcher)

    def _show(self, picture: Picture) -> None:
        self.wants_picture = False
        self._asked = None
        snapshot = veil_snapshot(picture.snapshot, self._show_as)
        frames: dict[int, bytes] = {}
        for watcher in [watcher for watcher in self._watchers if watcher.phase is Phase.NEEDY]:
            if watcher.wants_metrics:
                body = metrics.exposition(picture.snapshot, len(picture.violations)).encode()
                watcher.say(doorman.answer(200, metrics.CONTENT_TYPE, body))
                watcher.phase = Phase.LEAVING
                watcher.since = time.monotonic()
            else:
                dropped = watcher.dropped
                if dropped not in frames:
                    shown = msgspec.structs.replace(picture, snapshot=snapshot, seq=self._seq, dropped=dropped)
                    frames[dropped] = frame(shown)
                watcher.show(frames[dropped])
            self._flush(watcher)

    def _flush(self, watcher: Watcher) -> None:
        try:
            watcher.write()
        except OSError:
            self._forget(watcher)
            return
        if watcher.phase is Phase.LEAVING and not watcher.pending:
            self._forget(watcher)
            return
        events = selectors.EVENT_READ | (selectors.EVENT_WRITE if watcher.pending else 0)
        if self._selector.get_key(watcher.connection).events != events:
            self._selector.modify(watcher.connection, events, watcher)

    def _forget(self, watcher: Watcher) -> None:
        self._selector.unregister(watcher.connection)
        watcher.connection.close()
        self._watchers.remove(watcher)
        if not self._watchers:
            self.watching = self.wants_picture = False
            self._asked = None

    def _leave(self, reason: str) -> None:
        """The end: say why, wait a moment for what is on its way, and shut all doors."""
        for door in self._doors:
            self._selector.unregister(door)
        _shut(self._doors[0], self.path)
        for door in self._doors[1:]:
            door.close()
        end = frame(End(reason))
        for watcher in list(self._watchers):
            if watcher.phase not in (Phase.ASKING, Phase.LEAVING) and not watcher.wants_metrics:
                watcher.say(end)
            watcher.phase = Phase.LEAVING
            self._flush(watcher)
        deadline = time.monotonic() + GOODBYE
        while self._watchers and time.monotonic() < deadline:
            for key, events in self._selector.select(TICK):
                if isinstance(key.data, Watcher):
                    self._serve(key.data, events)
        for watcher in list(self._watchers):
            self._forget(watcher)
        self._selector.close()
        self._alarm.close()
        self._waker.close()

    def _abandon(self) -> None:
        """This is a forked child: it serves nobody, and keeps nothing of its parent's open."""
        self.watching = self.wants_picture = False
        self.lock = threading.RLock()  # the teller may have held it, and there is no teller here
        for each in (*self._doors, self._alarm, self._waker, *(watcher.connection for watcher in self._watchers)):
            each.close()
        self._selector.close()


def _shut(door: socket.socket, path: Path) -> None:
    path.unlink(missing_ok=True)
    door.close()


def _abandon_all() -> None:
    for publisher in list(_publishers):
        publisher._abandon()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_abandon_all)
