"""An engine on the stub, and requests that share prefixes and do not fit together."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from vllm import EngineArgs, LLMEngine, SamplingParams

from attach.stub.executor import StubExecutor
from attach.stub.folder import write_model
from attach.stub.options import Options
from attach.stub.tokens import next_token

OUTPUT = 60  # tokens


def arguments(folder: Path) -> dict[str, Any]:
    """For vLLM's EngineArgs: a model in ``folder`` on the stub, 39 usable blocks of 16 tokens, prefix caching.

    One request of the longest length has room, in two KV-cache groups too: vLLM insists.
    """
    return {
        "model": str(write_model(folder)),
        "load_format": "dummy",
        "dtype": "float32",
        "enforce_eager": True,
        "block_size": 16,
        "num_gpu_blocks_override": 40,
        "max_model_len": 256,
        "max_num_batched_tokens": 512,
        "max_num_seqs": 8,
        "enable_prefix_caching": True,
        "distributed_executor_backend": StubExecutor,
    }


def make_engine(folder: Path, multiprocess: bool = False, **options: Any) -> LLMEngine:
    """An engine in this process, or with its core in another; `options` go to EngineArgs, over `arguments`.

    ``VLLM_ENABLE_V1_MULTIPROCESSING=0`` must be set, or the core is always in another process.
    """
    engine_args = EngineArgs(**arguments(folder) | options)
    return LLMEngine.from_engine_args(engine_args, enable_multiprocessing=multiprocess)


def prompts() -> dict[str, list[int]]:
    """Eight of 108 tokens whose first three blocks are the same: with their outputs 88 blocks, three of them shared."""
    shared = list(range(1000, 1048))
    return {f"q{i}": shared + list(range(2000 + 97 * i, 2060 + 97 * i)) for i in range(8)}


def sampling(**options: Any) -> SamplingParams:
    return SamplingParams(temperature=0, max_tokens=OUTPUT, ignore_eos=True, detokenize=False, **options)


def add(engine: LLMEngine, requests: dict[str, list[int]], **options: Any) -> dict[str, Any]:
    """What `add_request` returned for each: its internal name in 0.17 and later, nothing before."""
    return {
        name: engine.add_request(name, {"prompt_token_ids": tokens}, sampling(**options))
        for name, tokens in requests.items()
    }


def drain(engine: LLMEngine) -> tuple[int, dict[str, list[int]]]:
    """Steps until nothing is left to do: how many, and the output tokens of each request."""
    steps, outputs = 0, {}
    while engine.has_unfinished_requests():
        steps += 1
        for output in engine.step():
            outputs[output.request_id] = list(output.outputs[0].token_ids)
    return steps, outputs


def expected(
    requests: dict[str, list[int]], forced: Sequence[int] = (), options: Options | None = None
) -> dict[str, list[int]]:
    """What `drain` gives for these requests, whatever was pre-empted, shared or run beside them."""
    length = min(OUTPUT, (options and options.end_after) or OUTPUT)
    return {
        name: [next_token(tokens, len(tokens) + n, forced, options) for n in range(length)]
        for name, tokens in requests.items()
    }
