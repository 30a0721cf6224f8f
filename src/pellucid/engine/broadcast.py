"""Our own engine as something to watch: its journal, told turn by turn."""

from __future__ import annotations

import itertools
import os
import time
from types import TracebackType

import pellucid
from pellucid.kv.acts import Lookup
from pellucid.kv.manager import KVManager
from pellucid.stream.messages import Picture, Watched
from pellucid.stream.publisher import Publisher
from pellucid.stream.times import StepTimes

RECENT_ACTS = 20_000
"""The lookups of requests that have ended are found among so many last acts."""

_ranks = itertools.count()  # several engines in one process are told apart as the cores of one engine are


class Broadcast:
    """The context in which an engine takes its turns: at the end of each, whoever watches is told what happened.

    A turn is whatever writes to the journal: a step, but also an abort or a move between two steps.

    Raises `StreamError` if the engine cannot be made watchable.
    """

    def __init__(self, kv: KVManager, model: str, *, show_identities: bool = False) -> None:
        self._kv = kv
        self._times = StepTimes()
        self._told = len(kv.journal)
        watched = Watched(
            engine=f"pellucid {pellucid.__version__}",
            model=model,
            pid=os.getpid(),
            rank=next(_ranks),
            started=time.time(),
        )
        self.publisher = Publisher(watched, self._picture, show_identities=show_identities)

    def __enter__(self) -> None:
        self._lock = self.publisher.lock  # after a fork in the middle of a turn that is another one
        self._lock.acquire()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        now, publisher = time.time(), self.publisher
        try:
            self._times.note(self._kv.step, now)
            if publisher.watching:
                publisher.publish(now, self._kv.journal.since(self._told))
            self._told = len(self._kv.journal)
            if publisher.wants_picture:
                publisher.give(self._picture())
        finally:
            self._lock.release()

    def _picture(self) -> Picture:
        journal = self._kv.journal
        recent = journal.since(max(journal.folded, len(journal) - RECENT_ACTS))
        lookups = {table.name: table.lookup for table in self._kv.live_tables() if table.lookup is not None}
        lookups |= {act.request: act for act in recent if isinstance(act, Lookup)}
        return Picture(time=time.time(), snapshot=self._kv.snapshot(), lookups=lookups, times=self._times.table())
