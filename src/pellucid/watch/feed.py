"""One engine core that is watched: its messages folded, and what became of the connection."""

from __future__ import annotations

import threading
import time

from pellucid.errors import JournalError, StreamError
from pellucid.stream.live import Live
from pellucid.stream.messages import AnyMessage, End, Picture, Step
from pellucid.stream.reader import Reader
from pellucid.stream.recording import Recorder
from pellucid.watch.pace import Pace
from pellucid.watch.scene import Scene, scene_of

FIRST_PICTURE_S = 30.0
"""An engine in the middle of a long step gives its picture after it."""
WAIT_S = 0.1


class Feed:
    """Takes what ``reader`` gives, by itself once it was told to `start`, and hands it on to ``recorder``.

    ``version`` counts what came. ``ended`` says why nothing more comes. ``status`` is that of the process: 0,
    or 1 if the engine was lost or the recording is not whole.
    """

    def __init__(self, reader: Reader, recorder: Recorder | None = None) -> None:
        self.reader = reader
        self.live = Live(reader.hello.watched)
        self.version = 0
        self.ended: str | None = None
        self._lost = False
        self._recorder = recorder
        self._pace: Pace | None = None
        self._arrived = 0.0
        self._lock = threading.Lock()
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name="pellucid-watch", daemon=True)

    @property
    def status(self) -> int:
        return int(self._lost or bool(self._recorder and self._recorder.stopped))

    def start(self) -> None:
        """Take whatever comes from now on, in a thread."""
        self._thread.start()

    def stop(self) -> None:
        """Take nothing more; what becomes of the connection from now on is not the engine's doing."""
        self._stopping = True
        if self._thread.is_alive():
            self._thread.join()

    def wait_for_picture(self, timeout: float = FIRST_PICTURE_S) -> None:
        """Return once there is something to show. Raises `StreamError` if nothing comes."""
        deadline = time.monotonic() + timeout
        while not self.live.ready:
            self.take(max(0.0, deadline - time.monotonic()))
            if self.ended is not None:
                raise StreamError(self.ended)
            if not self.live.ready and time.monotonic() > deadline:
                raise StreamError(
                    f"process {self.live.watched.pid} gave no picture within {timeout:g} s: "
                    "it is stopped, or in a very long step; try again."
                )

    def take(self, timeout: float) -> bool:
        """Take the next message, if one comes within ``timeout`` seconds; returns whether there is anything new."""
        try:
            message = self.reader.next(timeout)
            if message is None:
                return False
            if self._recorder:
                self._recorder.take(message)
            with self._lock:
                self._fold(message)
        except (StreamError, JournalError) as error:
            self._lost = True
            self.ended = str(error)
        self.version += 1
        return True

    def scene(self) -> Scene:
        """What there is to see now."""
        with self._lock:
            rate = self._pace.rate(self.now) if self._pace else None
            notes = (self._recorder.stopped,) if self._recorder and self._recorder.stopped else ()
            return scene_of(self.live, rate=rate, ended=self.ended, notes=notes)

    @property
    def now(self) -> float:
        """Unix time by the engine's clock."""
        return self.live.time + time.monotonic() - self._arrived

    def _run(self) -> None:
        while self.ended is None and not self._stopping:
            self.take(WAIT_S)

    def _fold(self, message: AnyMessage) -> None:
        self.live.take(message)
        if isinstance(message, End):
            self.ended = message.reason
        elif isinstance(message, Picture):
            self._pace = Pace(message.time, message.snapshot.step)
        elif isinstance(message, Step) and self._pace and message.acts:
            self._pace.note(message.time, message.acts[-1].step)
        self._arrived = time.monotonic()
