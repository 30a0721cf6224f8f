"""An observed scheduler that can be watched from other processes."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from multiprocessing.util import Finalize
from typing import Any

from pellucid import log
from pellucid.attach.finder import is_tested, version
from pellucid.attach.layout import SLIDING_WINDOW
from pellucid.attach.names import Names
from pellucid.attach.observer import Observer
from pellucid.attach.picture import picture
from pellucid.kv.acts import AnyAct
from pellucid.kv.snapshot import GroupView
from pellucid.stream.messages import Picture, Watched
from pellucid.stream.publisher import Publisher
from pellucid.stream.times import StepTimes

MOST_SENTENCES = 64


class Served:
    """Observes ``scheduler`` and publishes it. Raises `NotObservable`, and `StreamError` if no socket can be opened."""

    def __init__(self, scheduler: Any, names: Names) -> None:
        self._times = StepTimes()
        self._wrong: tuple[str, ...] = ()  # what does not add up stays in view, its oldest sentences first
        self.observer = Observer(scheduler, self._told, names, listens=self._watching, remembers_tables=False)
        try:
            self.publisher = Publisher(_watched(scheduler, self.observer.layout.groups), self._picture)
        except BaseException:
            self.observer.stop("it cannot be watched")
            raise
        self.publisher.lock = self.observer.lock
        # The processes in which vLLM keeps its engine cores end without what is registered with atexit.
        Finalize(None, self.publisher.close, args=("vLLM shut down",), exitpriority=0)
        log.say(f"observing {self.watched.engine}; look with: pellucid watch {self.watched.pid}")

    @property
    def watched(self) -> Watched:
        return self.publisher.watched

    def _watching(self) -> bool:
        """Asked before every turn: one that began without a watcher is told of by the picture alone."""
        return self.publisher.watching

    def _told(self, now: float, acts: Sequence[AnyAct], violations: Sequence[str]) -> None:
        self._times.note(self.observer.mirror.step, now)
        if violations:
            self._wrong = (*self._wrong, *violations)[:MOST_SENTENCES]
        self.publisher.publish(now, acts, self._wrong)
        if self.observer.stopped is not None:
            log.say(self.observer.stopped)
            self.publisher.close(self.observer.stopped)
        elif self.publisher.wants_picture:
            self.publisher.give(self._picture())

    def _picture(self) -> Picture:
        """Called by whoever holds the lock: vLLM's own thread, or the publisher's while vLLM rests."""
        mirror = self.observer.mirror
        lookups = {name: ended.lookup for name, ended in mirror.ended.items() if ended.lookup is not None}
        lookups |= {seen.name: seen.lookup for seen in mirror.requests.values() if seen.lookup is not None}
        return Picture(
            time=time.time(),
            snapshot=picture(self.observer.layout, mirror, 0, read_blocks=False),
            lookups=lookups,
            times=self._times.table(),
            violations=self._wrong,
        )


def _watched(scheduler: Any, groups: Sequence[GroupView]) -> Watched:
    config = getattr(scheduler, "vllm_config", None)
    found = version()
    unobservable = ["where the pool lies in memory", "fences: vLLM leaves the order of writes to the device's queue"]
    if not is_tested(found):
        unobservable.append(f"whether all this holds on vLLM {found}, on which it was not tested")
    if any(group.kind == SLIDING_WINDOW for group in groups):
        unobservable.append("why a block missed in one KV group and not in another")
    return Watched(
        engine=f"vllm {found}",
        model=_model(getattr(config, "model_config", None)),
        pid=os.getpid(),
        rank=_rank(getattr(config, "parallel_config", None)),
        started=time.time(),
        unobservable=tuple(unobservable),
    )


def _rank(config: Any) -> int:
    """Among data-parallel engine cores; those of most models are told that they are alone, but for their index."""
    return getattr(config, "data_parallel_index", None) or getattr(config, "data_parallel_rank", 0) or 0


def _model(config: Any) -> str:
    served = getattr(config, "served_model_name", None) or getattr(config, "model", "unknown")
    return str(served[0] if isinstance(served, list) else served)
