"""A real vLLM in this process as a subject of the lab."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pellucid.attach import observe
from pellucid.errors import EngineStopped, RequestError
from pellucid.kv.acts import AnyAct
from pellucid.kv.invariants import Violation
from pellucid.kv.memory import PoolMemory
from pellucid.kv.snapshot import Snapshot
from pellucid.lab.subject import About, Output


class VllmSubject:
    """A `Subject` over ``engine``, an idle vLLM ``LLMEngine`` that is to be driven by nobody else.

    Raises `NotObservable` if that vLLM cannot be observed truthfully.
    """

    def __init__(self, engine: Any, about: About) -> None:
        from vllm import SamplingParams

        self.engine = engine
        self.about = about
        self.kv = observe(engine, journal_capacity=None)
        self._auditor = self.kv.auditor()
        self._sampling = SamplingParams

    def add_request(self, name: str, prompt: Sequence[int], max_tokens: int, salt: str | None = None) -> None:
        sampling = self._sampling(temperature=0, max_tokens=max_tokens, ignore_eos=True, detokenize=False)
        asked: dict[str, Any] = {"prompt_token_ids": list(prompt)}
        if salt is not None:
            asked["cache_salt"] = salt
        try:
            self.engine.add_request(name, asked, sampling)
        except ValueError as error:
            raise RequestError(f"vLLM refuses {name!r}: {error}") from error

    def abort_request(self, name: str) -> None:
        self.engine.abort_request([name])  # by the caller's exact name: vLLM knows what it has made of it

    def move_block(self, block: int, to: int) -> bool:
        """vLLM moves no live block."""
        return False

    def step(self) -> Mapping[str, Output]:
        try:
            outputs = self.engine.step()
        except Exception as error:  # of any type: of vLLM, torch, a kernel
            raise EngineStopped(f"vLLM stopped in the middle of a step: {' '.join(str(error).split())}") from error
        return {
            output.request_id: Output(tuple(output.outputs[0].token_ids), output.num_cached_tokens, output.finished)
            for output in outputs
        }

    def has_unfinished_requests(self) -> bool:
        """A step that is under way for nobody any more counts too: its result is still to come in."""
        under_way = getattr(self.engine.engine_core.engine_core, "batch_queue", None)
        return bool(self.engine.has_unfinished_requests() or under_way)

    def snapshot(self) -> Snapshot:
        return self.kv.snapshot()

    def acts_since(self, number: int) -> Sequence[AnyAct]:
        return self.kv.journal.since(number)

    def memory(self) -> PoolMemory | None:
        return self.kv.memory()

    def audit(self) -> Sequence[Violation]:
        return self._auditor.check()

    def close(self) -> None:
        """Let go of the engine."""
        self.kv.close()
        del self.engine
