"""Our engine as a script for vLLM drives it: with internal ids, and with its pool watched at every step."""

from __future__ import annotations

from typing import Any

from pellucid.compat.ids import InternalIds
from pellucid.compat.record import EngineRecord
from pellucid.engine.live import LiveRequest
from pellucid.engine.llm import LLM
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

    def _forget(self, name: str) -> LiveRequest:
        self.ids.forget(name)
        return super()._forget(name)

    def _advance(self, asynchronous: bool) -> list[int]:
        ended = super()._advance(asynchronous)
        self.record.step(self._memory())
        return ended

    def _memory(self) -> PoolMemory:
        memory = self.kv.memory()
        assert memory is not None
        return memory
