"""What the lab sets before it starts a vLLM, each with its reason. What is set already stays as it is."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from pellucid.lang import Sentence, say

SIZES = ("num_gpu_blocks_override", "kv_cache_memory_bytes")
"""vLLM's options that say how large the pool is."""

TOKENS, LEAST, MOST = 1264, 14, 316
"""The pool otherwise: usable blocks for so many tokens, within these bounds, as `PellucidLaboratory` has it."""

SEQUENCES = 64
CPU_BLOCK, BLOCK = 32, 16
"""vLLM's attention on a CPU takes multiples of 32 only (0.29.0 and later)."""


class Preset(NamedTuple):
    """``name`` (of an environment variable or of an option) was set to ``value``, and why."""

    name: str
    value: Any
    why: Sentence

    @property
    def line(self) -> Sentence:
        """For a reader."""
        return say("{name}={value}: {why}", name=self.name, value=str(self.value), why=self.why)


def on_cpu() -> bool:
    """Whether PyTorch finds no accelerator here. To be asked before vLLM is imported, which reads its environment."""
    import torch

    return not torch.accelerator.is_available()


def preset_environment(model: str, *, cpu: bool) -> tuple[Preset, ...]:
    """Set what is not set; returns what was."""
    presets = [preset for preset in _environment(model, cpu=cpu) if preset.name not in os.environ]
    for preset in presets:
        os.environ[preset.name] = preset.value
    return tuple(presets)


def preset_options(given: Mapping[str, Any], *, cpu: bool) -> tuple[Preset, ...]:
    """Those options of the lab that are not among those ``given``."""
    size = given.get("block_size") or (CPU_BLOCK if cpu else BLOCK)
    return tuple(preset for preset in _options(size, cpu=cpu) if not _is_given(preset.name, given))


def _is_given(name: str, given: Mapping[str, Any]) -> bool:
    return any(other in given for other in SIZES) if name in SIZES else name in given


def _environment(model: str, *, cpu: bool) -> Iterable[Preset]:
    in_process = say("the engine core runs in this process, where its block tables can be seen")
    yield Preset("VLLM_ENABLE_V1_MULTIPROCESSING", "0", in_process)
    yield Preset(
        "VLLM_USE_FLASHINFER_SAMPLER", "0", say("the plain sampler needs no compiler, and requests are greedy")
    )
    yield Preset("VLLM_LOGGING_LEVEL", "ERROR", say("only errors are said between the lines of the report"))
    yield Preset("VLLM_NO_USAGE_STATS", "1", say("these runs are not reported to anybody"))
    if Path(model).is_dir():
        yield Preset("HF_HUB_OFFLINE", "1", say("the model is a folder, so nothing is to be looked up"))
    if cpu:
        yield Preset("VLLM_CPU_KVCACHE_SPACE", "1", say("a small pool is enough, in GiB"))
        yield Preset("TORCHDYNAMO_DISABLE", "1", say("nothing is compiled on a CPU: the runs are short"))


def _options(size: int, *, cpu: bool) -> Iterable[Preset]:
    small = 1 + min(MOST, max(LEAST, TOKENS // size))
    yield Preset("num_gpu_blocks_override", small, say("a pool so small that re-use can be seen"))
    yield Preset("max_num_seqs", SEQUENCES, say("no scenario has more requests side by side"))
    yield Preset("skip_tokenizer_init", True, say("the lab speaks in token ids"))
    if cpu:
        yield Preset("block_size", CPU_BLOCK, say("vLLM's attention on a CPU takes multiples of 32"))
        yield Preset("dtype", "float32", say("answers can be compared, as rounding decides nothing"))
        yield Preset("enforce_eager", True, say("nothing is compiled on a CPU: the runs are short"))
    else:
        yield Preset("block_size", BLOCK, say("small blocks, so that there are many"))
