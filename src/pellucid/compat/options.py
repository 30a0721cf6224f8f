"""``vllm.LLM``'s keywords: ours are handed on, idle ones are named, and those that would change results refused."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from pellucid.compat.uncovered import is_neutral
from pellucid.engine.options import EngineOptions
from pellucid.errors import NotCovered

# vLLM's attention backends are kernels for GPUs, none of them ours.
OURS = frozenset(EngineOptions.__annotations__) - {"model", "attention_backend", "kernels"}

IDLE = frozenset(
    {
        "attention_backend",
        "compilation_config",
        "cpu_offload_gb",
        "disable_custom_all_reduce",
        "disable_log_requests",
        "disable_log_stats",
        "distributed_executor_backend",
        "download_dir",
        "enable_log_requests",
        "hf_token",
        "limit_mm_per_prompt",
        "max_parallel_loading_workers",
        "max_seq_len_to_capture",
        "prefix_caching_hash_algo",
        "safetensors_load_strategy",
        "swap_space",
        "use_tqdm_on_load",
    }
)
"""Options that change the speed, the place or the talk of vLLM on a GPU, and no result."""

LACKING = {
    "data_parallel_size": 1,
    "decode_context_parallel_size": 1,
    "enable_chunked_prefill": True,
    "generation_config": "auto",
    "kv_cache_dtype": "auto",
    "model_impl": "auto",
    "pipeline_parallel_size": 1,
    "runner": "auto",
    "task": "auto",
    "tensor_parallel_size": 1,
    "tokenizer_mode": "auto",
}
"""Options whose default is not None or False, with that default. Any other value asks for what we lack."""


def ours(model: str, given: Mapping[str, Any], say: Callable[[str], None]) -> dict[str, Any]:
    """Our engine's options for what a script ``given`` to vLLM's; None there means the default.

    Scheduling is asynchronous unless the script says otherwise, as vLLM's is on a GPU.
    Raises `NotCovered`, naming option and value, for one that asks for what Pellucid lacks.
    """
    kept: dict[str, Any] = {"async_scheduling": True}
    idle = []
    for name, value in given.items():
        known = name in OURS and not (name == "quantization" and value not in (None, "gguf"))
        if known and value is not None:
            kept[name] = str(value).removeprefix("torch.") if name == "dtype" else value
        if name in IDLE or (not known and _is_default(name, value, model)):
            idle.append(name)
        elif not known:
            raise NotCovered(
                f"the engine option {name}={value!r} is not covered by `pellucid run`: it would change results. "
                "Leave it out, or run the script on vLLM."
            )
    if idle:
        say(f"accepted, and changing nothing here: {', '.join(idle)}.")
    if "gpu_memory_utilization" in kept:
        share = kept["gpu_memory_utilization"]
        say(f"gpu_memory_utilization={share} is of a GPU, as in vLLM; on a CPU it only bounds the KV pool.")
    return kept


def _is_default(name: str, value: object, model: str) -> bool:
    if name == "tokenizer":
        return value in (None, model)
    if name in ("runner", "task") and value == "generate":
        return True
    return is_neutral(value, LACKING.get(name))
