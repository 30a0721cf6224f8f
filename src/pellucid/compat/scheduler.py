"""``scheduler``: who runs and who waits, by internal id."""

from __future__ import annotations

from pellucid.compat.engine import Engine
from pellucid.compat.kv_cache_manager import KVCacheManager
from pellucid.compat.uncovered import Part
from pellucid.engine.sequence import Sequence
from pellucid.kv.table import RequestStatus

PATH = "llm.llm_engine.engine_core.engine_core.scheduler"


class Request(Part):
    """vLLM's view of one live request. What is scheduled counts as computed, there as here."""

    _path = f"{PATH}.requests[i]"

    def __init__(self, request_id: str, sequence: Sequence) -> None:
        self._sequence = sequence
        self.request_id = request_id
        self.priority = sequence.request.priority
        self.num_prompt_tokens = sequence.prompt_len
        self.prompt_token_ids = list(sequence.request.prompt)

    @property
    def status(self) -> RequestStatus:
        return self._sequence.table.status

    @property
    def num_tokens(self) -> int:
        return len(self._sequence.tokens)

    @property
    def num_output_tokens(self) -> int:
        return self.num_tokens - self.num_prompt_tokens

    @property
    def output_token_ids(self) -> list[int]:
        return self._sequence.output

    @property
    def num_computed_tokens(self) -> int:
        return self._sequence.table.slots

    @property
    def num_preemptions(self) -> int:
        return self._sequence.table.preemptions


class Scheduler(Part):
    _path = PATH

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self.kv_cache_manager = KVCacheManager(engine)

    @property
    def running(self) -> list[Request]:
        return [self._request(sequence) for sequence in self._engine.scheduler.running]

    @property
    def waiting(self) -> list[Request]:
        """In the order in which they will be admitted."""
        return [self._request(sequence) for sequence in self._engine.scheduler.waiting]

    @property
    def requests(self) -> dict[str, Request]:
        return {request.request_id: request for request in self.running + self.waiting}

    def get_num_unfinished_requests(self) -> int:
        return len(self._engine.scheduler.running) + len(self._engine.scheduler.waiting)

    def _request(self, sequence: Sequence) -> Request:
        self._engine.record.ids_read = True
        return Request(self._engine.ids.of(sequence.name), sequence)
