"""An engine as its watcher knows it: the messages so far, folded."""

from __future__ import annotations

from collections import OrderedDict

from msgspec import Struct

from pellucid.errors import FinishedRequest, StreamError, UnknownRequest
from pellucid.kv import acts
from pellucid.kv.explain import Explanation
from pellucid.kv.fold import Fold
from pellucid.kv.snapshot import Snapshot
from pellucid.stream.messages import AnyMessage, End, Hello, Picture, Step, Watched
from pellucid.stream.times import StepTimes

REMEMBERED_REQUESTS = 1_000


class Ended(Struct, frozen=True):
    """A request that left while we watched: when, why, with how many tokens, and what it held last.

    ``tables`` has a block table for each KV group; all are empty for a request that ended while it waited.
    """

    request: str
    step: int
    time: float
    reason: str
    tokens: int
    tables: tuple[tuple[int, ...], ...]


class Live:
    """What an engine is like now, as far as it was told: `take` each message.

    ``lookups`` are the last lookups of live and recently ended requests, ``violations`` what did not hold when the
    last message was sent, ``dropped`` how many step messages this watcher was too slow for, ``time`` the Unix time
    of the last message, ``goodbye`` the reason for which nothing more will come.
    """

    def __init__(self, watched: Watched) -> None:
        self.watched = watched
        self.lookups: dict[str, acts.Lookup] = {}
        self.ended: OrderedDict[str, Ended] = OrderedDict()
        self.times = StepTimes()
        self.violations: tuple[str, ...] = ()
        self.dropped = 0
        self.time = watched.started
        self.goodbye: str | None = None
        self._fold: Fold | None = None
        self._snapshot: Snapshot | None = None
        self._groups = 0
        self._returned: dict[str, dict[int, tuple[int, ...]]] = {}  # last tables by request and KV group

    @property
    def ready(self) -> bool:
        """Whether there has been a picture."""
        return self._fold is not None

    @property
    def snapshot(self) -> Snapshot:
        """The whole accounting after the last message. Raises `StreamError` before the first picture."""
        if self._snapshot is None:
            self._snapshot = self._folding().snapshot()
        return self._snapshot

    def take(self, message: AnyMessage) -> None:
        """Go on by one message. Raises `JournalError` for acts that cannot follow those before them."""
        match message:
            case Hello(watched):
                self.watched = watched
            case Picture():
                self._start(message)
            case Step():
                self._go_on(message)
            case End(reason):
                self.goodbye = reason

    def tables(self, name: str) -> tuple[tuple[int, ...], ...]:
        """The block tables of the live request ``name``, one for each KV group; empty while it waits.

        Raises `FinishedRequest`, naming the step and the last tables, or `UnknownRequest`.
        """
        ended = self.ended.get(name)
        if ended is None:
            return self.snapshot.request(name).tables
        last = ", ".join(map(str, ended.tables))
        raise FinishedRequest(
            f"request {name!r} finished in step {ended.step}; it held {last} last.", ended.step, ended.tables[0]
        )

    def explanation(self, name: str) -> Explanation:
        """Why the last admission of a live or recently ended request hit what it hit. Raises `UnknownRequest`."""
        snapshot = self.snapshot
        live = any(request.name == name for request in snapshot.requests)
        if not live and name not in self.ended and name not in self.lookups:
            names = ", ".join(request.name for request in snapshot.requests[:8]) or "none"
            raise UnknownRequest(
                f"no request is named {name!r}, live or among the last that ended; names are matched exactly "
                f"(live: {names})."
            )
        size = snapshot.groups[0].block_size
        return Explanation(name, snapshot.prefix_caching, size, self.lookups.get(name), ended=not live)

    def age(self, step: int, now: float) -> float | None:
        """Seconds from ``step`` to the Unix time ``now``, to half a second; None if nobody remembers the step."""
        when = self.times.at(step)
        return None if when is None else max(0.0, now - when)

    def _folding(self) -> Fold:
        if self._fold is None:
            raise StreamError("the engine has not shown a picture of itself yet; take a few messages more.")
        return self._fold

    def _start(self, picture: Picture) -> None:
        self._fold = Fold(picture.snapshot)
        self._groups = len(picture.snapshot.groups)
        self._snapshot = picture.snapshot
        self._returned.clear()
        self.lookups = dict(picture.lookups)
        self.times.learn(picture.times)
        self.times.note(picture.snapshot.step, picture.time)
        self.time, self.violations, self.dropped = picture.time, picture.violations, picture.dropped
        for request in picture.snapshot.requests:
            self.ended.pop(request.name, None)

    def _go_on(self, step: Step) -> None:
        fold = self._folding()
        for act in step.acts:
            fold.apply(act)
            self._remember(act, step.time)
        if step.acts:
            self._snapshot = None
        self.times.note(fold.step, step.time)
        self.time, self.violations = step.time, step.violations

    def _remember(self, act: acts.AnyAct, time: float) -> None:
        match act:
            case acts.Open():
                self.lookups.pop(act.request, None)
                self.ended.pop(act.request, None)
            case acts.Lookup():
                self.lookups[act.request] = act
            case acts.Return():
                self._returned.setdefault(act.request, {})[act.group] = act.blocks[::-1]
            case acts.Preempt():
                self._returned.pop(act.request, None)
            case acts.Close():
                self._end(act, time)

    def _end(self, act: acts.Close, time: float) -> None:
        held = self._returned.pop(act.request, {})
        tables = tuple(held.get(group, ()) for group in range(self._groups))
        self.ended[act.request] = Ended(act.request, act.step, time, act.reason, act.tokens, tables)
        if len(self.ended) > REMEMBERED_REQUESTS:
            forgotten, _ = self.ended.popitem(last=False)
            self.lookups.pop(forgotten, None)
