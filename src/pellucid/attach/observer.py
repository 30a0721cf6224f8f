"""Standing beside a vLLM scheduler: what it is called with and what it answers becomes acts.

Five methods of the one live scheduler and two of its KV cache manager are wrapped, on the objects and not on their
classes. A wrapper calls through first, changes nothing, and never raises: if anything here fails, watching
ends, with the reason kept, and vLLM goes on alone.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from itertools import compress
from operator import attrgetter
from time import perf_counter_ns as clock
from typing import Any

from msgspec import Struct

from pellucid.attach.audit import Rounds
from pellucid.attach.layout import Layout
from pellucid.attach.mirror import Admission, Mirror, Tables
from pellucid.attach.names import Names
from pellucid.attach.seen import Seen
from pellucid.errors import NotObservable
from pellucid.kv.acts import AnyAct

Told = Callable[[float, Sequence[AnyAct], Sequence[str]], None]
"""Takes the time, the acts since the last call, and what did not add up."""

PLANNING, RECEIVING = "planning", "receiving"


def always() -> bool:
    """Somebody listens, whenever it is asked."""
    return True


class Flight(Struct, frozen=True):
    """A plan whose result is not there yet: vLLM's own output of it, its step, its batch, and how many had left then.

    ``names`` are those of the batch, none if nobody listened; ``dropped`` those whose result vLLM will throw away.
    """

    output: Any
    step: int
    names: tuple[str, ...]
    closed: int
    dropped: set[str]


class Observer:
    """Watches one scheduler from now until `stop`. Raises `NotObservable` for one that cannot be.

    ``told`` is called in vLLM's own thread after every call that changed anything; it is given no acts of a call
    before which ``listens()`` was false. ``lock`` is held while a wrapped call runs: who holds it sees vLLM between
    two of them. ``nanoseconds`` is the time that vLLM's calls took longer, waiting for ``lock`` included.
    """

    def __init__(
        self,
        scheduler: Any,
        told: Told,
        names: Names | None = None,
        *,
        listens: Callable[[], bool] = always,
        remembers_tables: bool = True,
    ) -> None:
        self.layout = Layout(scheduler)
        self.names = names or Names()
        self.mirror = Mirror(self.layout, self.names, remembers_tables=remembers_tables)
        self.lock = threading.RLock()
        self.stopped: str | None = None
        self.nanoseconds = 0
        self._told = told
        self._listens = listens
        self._rounds = Rounds(self.layout, self.mirror)
        self._during: str | None = None  # of what call of vLLM's that matters to `_freeing`
        self._inside = 0  # wrapped calls under way: vLLM may make one within another
        self._victims: list[tuple[Seen, Tables]] = []
        self._ended: list[tuple[Seen, Any]] = []
        self._flying: deque[Flight] = deque()
        self._originals: list[tuple[Any, str, Any]] = []
        self._wrap(scheduler)

    def stop(self, reason: str) -> None:
        """Take every wrapper off again."""
        if self.stopped is None:
            self.stopped = reason
            for owner, name, wrapper in self._originals:
                if owner.__dict__.get(name) is wrapper:  # somebody may have wrapped it once more
                    del owner.__dict__[name]

    # -- the wrappers ------------------------------------------------------------------------------

    def _wrap(self, scheduler: Any) -> None:
        manager = self.layout.manager
        self._put(scheduler, "add_request", self._around(scheduler.add_request, self._added))
        self._put(scheduler, "schedule", self._around(scheduler.schedule, self._planned, PLANNING))
        received = self._around(scheduler.update_from_output, self._received, RECEIVING)
        self._put(scheduler, "update_from_output", received)
        self._put(scheduler, "finish_requests", self._around(scheduler.finish_requests, self._nothing))
        if hasattr(scheduler, "reset_prefix_cache"):  # it takes blocks from running requests, one after the other
            self._put(scheduler, "reset_prefix_cache", self._around(scheduler.reset_prefix_cache, self._nothing))
        self._put(manager, "free", self._before(manager.free, self._freeing))
        if hasattr(manager, "reset_prefix_cache"):
            self._put(manager, "reset_prefix_cache", self._around(manager.reset_prefix_cache, self._was_reset))

    def _put(self, owner: Any, name: str, wrapper: Any) -> None:
        setattr(owner, name, wrapper)
        self._originals.append((owner, name, wrapper))

    def _around(self, original: Any, after: Callable[..., None], during: str | None = None) -> Any:
        """``original``, and then ``after(result, *args)``."""

        def call(*args: Any, **kwargs: Any) -> Any:
            if self.stopped is not None:
                return original(*args, **kwargs)
            began = clock()
            with self.lock:
                if not self._inside and self._listens() is not self.mirror.listening:
                    self.mirror.listen(not self.mirror.listening)
                outer, self._during = self._during, during or self._during
                self._inside += 1
                left = clock()
                try:
                    result = original(*args, **kwargs)
                finally:
                    back = clock()
                    self._inside -= 1
                    self._during = outer
                try:
                    after(result, *args, **kwargs)
                    if not self._inside:
                        self._tell()
                except Exception as error:
                    self._fail(error)
                self.nanoseconds += clock() - back + left - began
                return result

        return call

    def _before(self, original: Any, first: Callable[..., None]) -> Any:
        """``first(*args)``, and then ``original``."""

        def call(*args: Any, **kwargs: Any) -> Any:
            if self.stopped is not None:
                return original(*args, **kwargs)
            began = clock()
            with self.lock:
                try:
                    first(*args, **kwargs)
                except Exception as error:
                    self._fail(error)
                self._inside += 1
                self.nanoseconds += clock() - began
                try:
                    return original(*args, **kwargs)
                finally:
                    self._inside -= 1

        return call

    def _fail(self, error: Exception) -> None:
        """Something in here did not work, whatever it is: vLLM must never see it."""
        self.stop(f"observing ended, as something was not as expected: {type(error).__name__}: {error}")
        try:
            self._told(time.time(), (), (self.stopped or "",))
        except Exception:  # the sink itself may be what failed
            return

    def _tell(self) -> None:
        """vLLM is between two calls: what it shows now is what follows from all that was told."""
        mirror = self.mirror
        acts, violations, news = mirror.acts, mirror.violations, mirror.news
        if news is not None or violations:
            mirror.news = None
            if acts or violations:
                mirror.acts, mirror.violations = [], []
            if news is not None:
                mirror.told = news
            self._told(time.time(), acts or (), violations or ())

    # -- what they say -----------------------------------------------------------------------------

    def _added(self, _: Any, request: Any, *__: Any, **___: Any) -> None:
        if getattr(request, "resumable", False) or request.request_id in self.mirror.requests:
            raise NotObservable(
                "a request whose input streams in keeps its blocks while it waits, which is not followed"
            )
        self.mirror.open(request)

    def _planned(self, output: Any, *_: Any, **__: Any) -> None:
        mirror = self.mirror
        mirror.step += 1
        counts: dict[str, int] = output.num_scheduled_tokens
        if not self._only_goes_on(output):
            self._follow(output, counts)
        if counts:
            self._flying.append(Flight(output, mirror.step, mirror.launch(counts), mirror.closed, set()))
        if wrong := self._rounds.check():
            mirror.violations += wrong

    def _only_goes_on(self, output: Any) -> bool:
        """Whether this plan has one token for each of some running requests, and nobody gets, fills or loses a block.

        Most plans are like that, and it takes no Python for each request to see it: since 0.11.0 at least, where None
        stands for no new block.
        """
        mirror = self.mirror
        return not (
            self._victims
            or mirror.has_windows
            or mirror.step in mirror.looks
            or output.scheduled_new_reqs
            or output.total_num_scheduled_tokens != len(output.num_scheduled_tokens)
            or any(output.scheduled_cached_reqs.new_block_ids)
        )

    def _follow(self, output: Any, counts: dict[str, int]) -> None:
        """Whoever starts, resumes, grows, gives way, or may fill a block, in the order of the plan."""
        mirror = self.mirror
        grown, admissions = _changes(output)
        filling = set(mirror.due(counts))
        if output.total_num_scheduled_tokens != len(counts):
            several = [mirror.requests[name] for name, count in counts.items() if count != 1]
            filling.update([seen for seen in several if seen.running])
        passed = mirror.passed(counts) if mirror.has_windows else ()
        touched = list(map(mirror.requests.__getitem__, grown))
        if filling or passed:
            touched = sorted({*touched, *filling, *passed}, key=_order)
        for seen in touched:
            if seen in passed:
                mirror.drop(seen, self.layout.tables(seen.id))
            if (blocks := grown.get(seen.id)) is not None:
                if self._victims:
                    self._give_way(seen.name, sum(map(len, blocks)))
                mirror.grow(seen, blocks)
            if seen in filling:
                mirror.fill(seen)
        self._give_way(None, 0)
        for name in counts if admissions else ():
            if (admission := admissions.get(name)) is not None:
                seen = mirror.requests[name]
                mirror.admit(seen, admission)
                mirror.fill(seen)

    def _give_way(self, by: str | None, blocks: int) -> None:
        """Record the pre-emptions without which ``by`` could not have got ``blocks``; all that are left for None."""
        mirror = self.mirror
        while self._victims and (by is None or blocks > mirror.reclaimable):
            seen, tables = self._victims.pop(0)
            mirror.catch_up(seen, tables)
            mirror.preempt(seen, by or seen.name)

    def _received(self, _: Any, output: Any, runner_output: Any, *__: Any, **___: Any) -> None:
        for i, flight in enumerate(self._flying):
            if flight.output is output:
                del self._flying[i]
                names = self._got_a_token(flight, runner_output) if self.mirror.listening else ()
                self.mirror.commit(flight.step, names)
                break
        if self.layout.plans_ahead:
            self.mirror.fill_early()
        if self._ended:
            self._close_ended()

    def _got_a_token(self, flight: Flight, runner_output: Any) -> tuple[str, ...]:
        """Those of the batch that still live and were given a token."""
        sampled, live = runner_output.sampled_token_ids, self.mirror.requests
        planned = flight.output.num_scheduled_tokens
        names = flight.names or tuple([live[each].name if each in live else each for each in planned])
        whole = flight.closed == self.mirror.closed and not flight.dropped
        if whole and len(sampled) == len(names) and all(map(len, sampled)):
            return names  # nearly always
        if not len(sampled):
            return ()
        index = runner_output.req_id_to_index
        batch = [pair for pair in zip(names, planned, strict=True) if pair[0] not in flight.dropped]
        return tuple([name for name, each in batch if each in live and len(sampled[index[each]])])

    def _freeing(self, request: Any, *_: Any, **__: Any) -> None:
        """vLLM is about to take everything from ``request``: it has ended, or it has to give way."""
        seen = self.mirror.requests.get(request.request_id)
        if seen is None:
            return
        self.mirror.look_at(seen)
        if self._during is PLANNING:
            self._victims.append((seen, self.layout.tables(seen.id)))
        elif self._during is RECEIVING or request.is_finished():
            self._ended.append((seen, request))
        else:  # vLLM resets its cache: what is under way for this request will be thrown away
            for flight in self._flying:
                flight.dropped.add(seen.name)
            self.mirror.preempt(seen, seen.name)

    def _nothing(self, *_: Any, **__: Any) -> None:
        if self._during is None:  # else the result that is just coming in is told first
            self._close_ended()

    def _close_ended(self) -> None:
        for seen, request in self._ended:
            self.mirror.close(seen, _reason(request))
        self._ended.clear()

    def _was_reset(self, done: Any, *_: Any, **__: Any) -> None:
        if done:
            self.mirror.forget()


_order = attrgetter("order")


def _changes(output: Any) -> tuple[dict[str, Sequence[Sequence[int]]], dict[str, Admission]]:
    """Who got further blocks, and who starts or resumes."""
    cached = output.scheduled_cached_reqs
    new, admissions = cached.new_block_ids, {}
    grown = {name: blocks for name, blocks in compress(zip(cached.req_ids, new, strict=True), new) if any(blocks)}
    for data in output.scheduled_new_reqs:
        admissions[data.req_id] = Admission(tuple(map(tuple, data.block_ids)), data.num_computed_tokens)
    for name, computed in _resumed(cached):
        admissions[name] = Admission(tuple(map(tuple, grown.pop(name))), computed)
    return grown, admissions


def _resumed(cached: Any) -> list[tuple[str, int]]:
    """Resumed requests with their computed tokens; a set of ids since 0.12.0, a list of flags before."""
    resumed = getattr(cached, "resumed_req_ids", None)
    if resumed is None:
        flags = cached.resumed_from_preemption
        resumed = {name for name, flag in zip(cached.req_ids, flags, strict=True) if flag}
    if not resumed:
        return []
    pairs = zip(cached.req_ids, cached.num_computed_tokens, strict=True)
    return [(name, computed) for name, computed in pairs if name in resumed]


def _reason(request: Any) -> str:
    """Why it ended, in vLLM's own words: stop, length, abort ..."""
    reason = request.get_finished_reason()
    return "abort" if reason is None else str(reason)
