"""The executor: answers what vLLM's engine core asks of the workers of a model, and samples from `next_token`."""

from __future__ import annotations

import dataclasses
import inspect
import time
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import torch
from vllm.v1.executor.abstract import Executor
from vllm.v1.kv_cache_interface import FullAttentionSpec, SlidingWindowSpec
from vllm.v1.outputs import ModelRunnerOutput

from attach.stub.options import Options
from attach.stub.tokens import next_token

LAYERS = 2  # in each KV-cache group
MEMORY = 1 << 30  # bytes that vLLM may plan its KV cache in; nothing is allocated
SAMPLES_APART = hasattr(Executor, "sample_tokens")  # 0.12 and later: launched by one call, sampled by another


class Launched(Future):
    """A result that is there when it is asked for and not earlier: a step of the model has a certain length."""

    def __init__(self, value: Any, seconds: float) -> None:
        super().__init__()
        self.value, self.seconds = value, seconds

    def result(self, timeout: float | None = None) -> Any:
        if not self.done():
            time.sleep(self.seconds)
            self.set_result(self.value)
        return super().result(timeout)


@dataclasses.dataclass
class Row:
    """What a worker knows of one request."""

    prompt: list[int]
    forced: list[int]
    known: int  # tokens of the prompt and tokens sampled


class StubExecutor(Executor):
    """Pass the class itself as ``distributed_executor_backend``.

    Forced tokens travel with their request: ``SamplingParams(extra_args={"forced": [7, 8, 9]})``.
    """

    uses_ray = False
    supports_pp = False

    @classmethod
    def supports_async_scheduling(cls) -> bool:
        return True

    def _init_executor(self) -> None:
        self.options, self.rows, self.sampled = Options.read(), {}, None
        scheduler = self.scheduler_config  # the engine core reads it after this
        if len(self.options.groups) > 1:
            scheduler.disable_hybrid_kv_cache_manager = False
        if self.options.asynchronous:
            scheduler.async_scheduling = True
            if isinstance(scheduler.scheduler_cls, str):  # until 0.11 it names the synchronous one
                scheduler.scheduler_cls = "vllm.v1.core.sched.async_scheduler.AsyncScheduler"

    @property
    def max_concurrent_batches(self) -> int:
        return 2 if self.options.asynchronous else 1

    def get_kv_cache_specs(self) -> list[dict[str, Any]]:
        """One worker's: `LAYERS` layers for each of the options' groups."""
        model = self.model_config.hf_config
        want = {
            "block_size": self.cache_config.block_size,
            "num_kv_heads": model.num_key_value_heads,
            "head_size": model.hidden_size // model.num_attention_heads,
            "dtype": torch.float32,
            "use_mla": False,
        }
        layers: dict[str, Any] = {}
        for window in self.options.groups:
            kind = SlidingWindowSpec if window else FullAttentionSpec
            spec = kind(**known(kind, want | ({"sliding_window": window} if window else {})))
            first = len(layers)
            layers |= {f"model.layers.{i}.self_attn.attn": spec for i in range(first, first + LAYERS)}
        return [layers]

    def determine_available_memory(self) -> list[int]:
        return [MEMORY]

    def initialize_from_config(self, kv_cache_configs: list[Any]) -> None:
        """There is nothing to allocate."""

    def collective_rpc(
        self, method: Any, timeout: Any = None, args: Any = (), kwargs: Any = None, non_block: bool = False
    ) -> Any:
        answers = {
            "get_supported_tasks": [("generate",)],
            "get_supported_kv_cache_layouts": [["LBNHC", "LBHNC"]],
            "compile_or_warm_up_model": [SimpleNamespace(language_model=0.0, encoder=0.0)],
        }
        answer = answers.get(method, [None])
        return self._answer(answer, non_block)

    def execute_model(self, scheduler_output: Any, non_block: bool = False) -> Any:
        output = self._run(scheduler_output)
        if SAMPLES_APART and scheduler_output.total_num_scheduled_tokens:
            output, self.sampled = None, output
        return self._answer(output, non_block)

    def sample_tokens(self, grammar_output: Any, non_block: bool = False) -> Any:
        output, self.sampled = self.sampled, None
        return self._answer(output, non_block)

    def check_health(self) -> None:
        """It cannot fall ill."""

    def shutdown(self) -> None:
        """There is nobody to stop."""

    def _answer(self, value: Any, non_block: bool) -> Any:
        future = Launched(value, self.options.delay if isinstance(value, ModelRunnerOutput) else 0.0)
        return future if non_block else future.result()

    def _run(self, scheduler_output: Any) -> ModelRunnerOutput:
        for name in scheduler_output.finished_req_ids:
            self.rows.pop(name, None)
        computed = self._admit(scheduler_output)
        names = list(scheduler_output.num_scheduled_tokens)
        tokens = [self._sample(name, computed[name] + scheduler_output.num_scheduled_tokens[name]) for name in names]
        fields = {
            "req_ids": names,
            "req_id_to_index": {name: index for index, name in enumerate(names)},
            "sampled_token_ids": tokens,
            "spec_token_ids": None,
            "logprobs": None,
            "prompt_logprobs_dict": {},
            "pooler_output": [],
        }
        return ModelRunnerOutput(**known(ModelRunnerOutput, fields))

    def _admit(self, scheduler_output: Any) -> dict[str, int]:
        """The computed tokens of each request that is scheduled; one that comes back keeps its outputs."""
        for new in scheduler_output.scheduled_new_reqs:
            forced = (new.sampling_params.extra_args or {}).get("forced", [])
            self.rows[new.req_id] = Row(new.prompt_token_ids, forced, known=len(new.prompt_token_ids))
        cached = scheduler_output.scheduled_cached_reqs
        computed = {new.req_id: new.num_computed_tokens for new in scheduler_output.scheduled_new_reqs}
        return computed | dict(zip(cached.req_ids, cached.num_computed_tokens, strict=True))

    def _sample(self, name: str, end: int) -> list[int]:
        row = self.rows[name]
        if end < row.known:  # a chunk of the prompt, or of what is computed again
            return []
        row.known += 1
        return [next_token(row.prompt, row.known - 1, row.forced, self.options)]


def known(kind: type, values: dict[str, Any]) -> dict[str, Any]:
    """Those of the values that this version's ``kind`` has a parameter for."""
    return {name: value for name, value in values.items() if name in inspect.signature(kind).parameters}
