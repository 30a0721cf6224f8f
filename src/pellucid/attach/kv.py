"""``observe(llm)``: a vLLM in this process, with the face of our own ``llm.kv``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from pellucid.attach.auditor import ObservedAuditor
from pellucid.attach.finder import Found, find, is_tested, version
from pellucid.attach.layout import Finding
from pellucid.attach.memory import pool_memory
from pellucid.attach.mirror import Ended
from pellucid.attach.names import Names
from pellucid.attach.observer import Observer
from pellucid.attach.picture import picture
from pellucid.attach.seen import Seen
from pellucid.errors import FinishedRequest, NotObservable
from pellucid.kv.acts import AnyAct
from pellucid.kv.explain import Explanation
from pellucid.kv.journal import Journal
from pellucid.kv.memory import PoolMemory
from pellucid.kv.snapshot import Snapshot, only_table
from pellucid.log import say

JOURNAL_CAPACITY = 1_000_000
CLOSED = "it was closed"
MOST_VIOLATIONS = 10_000


class ObservedKV:
    """The KV memory of a vLLM in this process, since it was first observed.

    ``violations`` are sentences about what did not add up, the first 10,000; ``findings`` are what was looked for
    and found.
    """

    def __init__(self, found: Found, journal_capacity: int | None = JOURNAL_CAPACITY) -> None:
        if getattr(found.core, "batch_queue", None):
            raise NotObservable("a step of this vLLM is under way: observe it before its first request, or when idle.")
        self.violations: list[str] = []
        self._core = found.core
        names = Names()
        _introduce(names, found)
        self._observer = Observer(found.scheduler, self._take, names)
        self._announced = _announce(names, found.core)
        self.findings: tuple[Finding, ...] = (*found.findings, *self._observer.layout.findings)
        self.journal = Journal(picture(self._observer.layout, self._observer.mirror, 0), journal_capacity)

    @property
    def block_size(self) -> int:
        """Tokens per block, of the first KV group."""
        return self._observer.layout.groups[0].block_size

    @property
    def stopped(self) -> str | None:
        """Why observing ended, None while it goes on."""
        return self._observer.stopped

    @property
    def microseconds_per_step(self) -> float:
        """The time spent in observing, by its own clock, over the steps seen."""
        return self._observer.nanoseconds / 1_000 / max(1, self._observer.mirror.step)

    def tables(self, name: str) -> tuple[tuple[int, ...], ...]:
        """The block tables of the live request that its caller named ``name``, one for each KV group.

        Empty while it waits. Block 0 stands where a sliding window has left a block behind. Raises
        `FinishedRequest`, naming the step and the last tables, `AmbiguousName`, or `UnknownRequest`.
        """
        self._go_on()
        with self._observer.lock:
            live, ended = self._known(name)
            if live is not None:
                return self._observer.layout.tables(live.id)
        assert ended is not None
        last = ended.tables[0] if len(ended.tables) == 1 else ended.tables
        message = f"request {name!r} finished in step {ended.step}; its last table was {last}."
        raise FinishedRequest(message, ended.step, ended.tables[0])

    def table(self, name: str) -> tuple[int, ...]:
        """The only block table of ``name``, as `tables`. Raises `SeveralGroups` where there are several KV groups."""
        return only_table(name, self.tables(name))

    def snapshot(self) -> Snapshot:
        """The whole pool now, read from vLLM's own objects. Raises `NotObservable` once observing has ended."""
        self._go_on()
        with self._observer.lock:
            return picture(self._observer.layout, self._observer.mirror, len(self.journal))

    def explain(self, name: str) -> Explanation:
        """Why the last admission of ``name`` hit what it hit; ended requests can still be asked about."""
        with self._observer.lock:
            live, ended = self._known(name)
            lookup = live.lookup if live else ended.lookup if ended else None
        return Explanation(name, self._observer.layout.caching, self.block_size, lookup, ended=live is None)

    def memory(self) -> PoolMemory | None:
        """Where the KV tensors are now; None if no worker is in this process."""
        return pool_memory(self._core)

    def auditor(self) -> ObservedAuditor:
        """A checker of every invariant that can be seen, from now on; call its ``check()`` after each step."""
        observer = self._observer
        return ObservedAuditor(
            observer.layout, observer.mirror, self.journal, self.violations, self.snapshot, self.memory
        )

    def close(self) -> None:
        """Stop observing; what was seen stays."""
        self._observer.stop(CLOSED)
        self._announced()

    def _go_on(self) -> None:
        if self.stopped is not None:
            raise NotObservable(f"this vLLM is no longer observed: {self.stopped}")

    def _known(self, name: str) -> tuple[Seen | None, Ended | None]:
        mirror = self._observer.mirror
        known = self._observer.names.find(name, mirror.ended)
        live = next((seen for seen in mirror.requests.values() if seen.name == known), None)
        return live, mirror.ended.get(known)

    def _take(self, time: float, acts: Sequence[AnyAct], violations: Sequence[str]) -> None:
        for act in acts:
            self.journal.append(act)
        self.journal.compact()
        self.violations += violations[: max(0, MOST_VIOLATIONS - len(self.violations))]


def observe(llm: Any, *, journal_capacity: int | None = JOURNAL_CAPACITY) -> ObservedKV:
    """See the KV memory of ``llm``, a vLLM ``LLM`` or ``LLMEngine`` whose engine core runs in this process.

    Raises `NotObservable`, with all that was looked for, if that vLLM is not one that can be observed truthfully.
    """
    kv = ObservedKV(find(llm), journal_capacity)
    if not is_tested(version()):
        say(f"observing was not tested on vLLM {version()}; what it shows is checked as it goes.")
    return kv


def _introduce(names: Names, found: Found) -> None:
    """The callers' names of requests that are there already, by vLLM's own record."""
    states = getattr(getattr(found.front, "output_processor", None), "request_states", {})
    for internal, state in states.items():
        names.announce(internal, getattr(state, "external_req_id", None))


def _announce(names: Names, core: Any) -> Callable[[], None]:
    """From now on, hear the caller's name as vLLM makes its own of it; until what is returned is called."""
    original = getattr(core, "preprocess_add_request", None)
    if original is None:  # before 0.14.0 a request keeps the name it was given
        return lambda: None

    def preprocess_add_request(request: Any) -> Any:
        names.announce(request.request_id, getattr(request, "external_req_id", None))
        return original(request)

    def take_off() -> None:
        if vars(core).get("preprocess_add_request") is preprocess_add_request:  # somebody may have wrapped it once more
            del core.preprocess_add_request

    core.preprocess_add_request = preprocess_add_request
    return take_off
