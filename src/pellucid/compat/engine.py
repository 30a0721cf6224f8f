"""Our engine as a script for vLLM drives it: with internal ids, and with its pool watched at every step."""

from __future__ import annotations

from typing import Any

from pellucid.compat.ids import InternalIds
from pellucid.compat.record import EngineRecord
from pellucid.engine.live import LiveRequest
from pellucid.engine.llm import LLM
from pellucid.engine.output import RequestOutput
from pellucid.engine.scheduler import Scheduler
from pellucid.kv.memory import PoolMemory


class Engine(LLM):
    """`pellucid.LLM`, written down in ``record``; ``ids`` has the internal ids of its live requests.

    ``named`` is the model that the script named, ``model`` the one it gets.
    """

    def __init__(self, model: str, named: str, **options: Any) -> None:
        super().__init__(model, **options)
        self.ids = InternalIds()
        self.record = EngineRecord(model, named, self.pool.num_blocks, self._memory())

    @property
    def scheduler(self) -> Scheduler:
        return self._core.scheduler

    def add_request(self, request_id: str, *args: Any, **options: Any) -> str:
        name = super().add_request(request_id, *args, **options)
        self.ids.issue(name)
        return name

    def abort_request(self, request_id: str) -> RequestOutput:
        output = super().abort_request(request_id)
        self.ids.forget(request_id)
        return output

    def _step(self, asynchronous: bool) -> dict[str, LiveRequest]:
        progressed = super()._step(asynchronous)
        for name, live in progressed.items():
            if live.finished:
                self.ids.forget(name)
        self.record.step(self._memory())
        return progressed

    def _memory(self) -> PoolMemory:
        memory = self.kv.memory()
        assert memory is not None
        return memory
