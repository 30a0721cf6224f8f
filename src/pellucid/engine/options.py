"""Every option of an engine, under vLLM's names, checked before anything is loaded."""

from __future__ import annotations

from typing import Any, NamedTuple

import msgspec
from msgspec import Struct

from pellucid.errors import ConfigError, refuse_unknown_options

DEFAULT_MODEL = "smollm2-135m"


class Limits(NamedTuple):
    """The most requests that run at once, ``max_num_seqs``, and tokens of a step, ``max_num_batched_tokens``."""

    requests: int
    tokens: int


LIMITS = {"cpu": Limits(128, 2048), "cuda": Limits(256, 8192)}
"""What they are where they are not given, by the type of device."""


class EngineOptions(Struct, frozen=True, kw_only=True):
    """The options of `pellucid.LLM`.

    *Model*: ``model`` is ``smollm2-135m``, ``tiny``, a Hugging Face folder, a ``.gguf`` file or a hub
    id; ``device`` is auto (a GPU if torch sees one and Triton can be imported, else the CPU), cpu or cuda;
    ``dtype`` is auto (float32 on a CPU, bfloat16 on a GPU), float32, bfloat16 or float16;
    ``load_format="dummy"`` takes random weights, for which a config.json is enough; ``quantization="gguf"``
    keeps a GGUF file's 4- and 8-bit weights as they are; ``seed`` makes unseeded sampling reproducible.

    *Memory*: give the KV pool's size at most once, as ``num_gpu_blocks_override`` (blocks, block 0
    included), ``kv_cache_tokens`` or ``kv_cache_memory_bytes``. ``gpu_memory_utilization`` bounds it: on a GPU
    it is the share of the whole card that weights, activations, graphs and pool may take together, and the pool's
    default is what the others leave of that; on a CPU the default is 1 GiB, or a tenth of the memory this process
    may use if that is less. ``max_model_len`` defaults to the smaller of the model's and what the pool holds.

    *Scheduling*: ``max_num_batched_tokens`` tokens a step (None: 2,048 on a CPU, 8,192 on a GPU), ``max_num_seqs``
    requests at once (None: 128 on a CPU, 256 on a GPU), ``scheduling_policy`` fcfs or priority, ``watermark`` the
    share of the pool that admission leaves free while anything runs. ``async_scheduling`` None means on, but off for
    `LLM.step` on a CPU.

    *Blocks*: ``block_size`` a power of two from 1 to 256, ``enable_prefix_caching``, ``reuse_policy``
    free-first, vllm-0.23 or vllm-0.24; ``shuffle_blocks`` is a seed that scatters physical ids from the
    start (None: first used in ascending order); ``journal_capacity`` acts are kept (None: all), older ones are
    folded; ``verify_prefix_hits`` compares token ids on every hit; ``observe`` lets other processes of this user
    watch the engine (None: if PELLUCID_OBSERVE=1).

    *Arithmetic*: ``kernels`` triton, compiled, onednn or torch, and ``attention_backend`` triton, compiled or
    reference; auto takes the fastest that this device can run, and says which on stderr. ``enforce_eager`` launches
    the kernels of a step one by one, without CUDA graphs: a quicker start, and slower steps. With ``lazy_graphs`` each
    graph is captured when a step first needs it: a quicker start, and some slower steps.
    """

    model: str = DEFAULT_MODEL
    dtype: str = "auto"
    device: str = "auto"
    load_format: str = "auto"
    quantization: str | None = None
    skip_tokenizer_init: bool = False
    seed: int = 0
    max_model_len: int | None = None
    block_size: int = 16
    num_gpu_blocks_override: int | None = None
    kv_cache_tokens: int | None = None
    kv_cache_memory_bytes: int | None = None
    gpu_memory_utilization: float = 0.9
    enable_prefix_caching: bool = True
    max_num_seqs: int | None = None
    max_num_batched_tokens: int | None = None
    scheduling_policy: str = "fcfs"
    watermark: float = 0.0
    async_scheduling: bool | None = None
    reuse_policy: str = "free-first"
    shuffle_blocks: int | None = None
    attention_backend: str = "auto"
    kernels: str = "auto"
    enforce_eager: bool = False
    lazy_graphs: bool = False
    journal_capacity: int | None = 100_000
    verify_prefix_hits: bool = False
    observe: bool | None = None

    @classmethod
    def of(cls, where: str, options: dict[str, Any]) -> EngineOptions:
        """Options from keywords. Raises `ConfigError` for an unknown one or a value of the wrong type."""
        refuse_unknown_options(where, options, cls.__struct_fields__)
        try:
            return msgspec.convert(options, cls)
        except msgspec.ValidationError as error:
            if isinstance(error.__cause__, ConfigError):
                raise error.__cause__ from None
            raise ConfigError(f"{where}: {error}.") from None

    def on(self, device: str) -> EngineOptions:
        """The same options with what depends on the device filled in; ``device`` is cpu, cuda, or cuda:N."""
        kind = device.partition(":")[0]
        ahead = True if kind == "cuda" and self.async_scheduling is None else self.async_scheduling
        requests = LIMITS[kind].requests if self.max_num_seqs is None else self.max_num_seqs
        tokens = LIMITS[kind].tokens if self.max_num_batched_tokens is None else self.max_num_batched_tokens
        return msgspec.structs.replace(
            self, device=device, async_scheduling=ahead, max_num_seqs=requests, max_num_batched_tokens=tokens
        )

    @property
    def limits(self) -> Limits:
        """Of a step, filled in by `on`."""
        assert self.max_num_seqs is not None
        assert self.max_num_batched_tokens is not None
        return Limits(self.max_num_seqs, self.max_num_batched_tokens)

    def __post_init__(self) -> None:
        sizes = ("num_gpu_blocks_override", "kv_cache_tokens", "kv_cache_memory_bytes")
        given = [name for name in sizes if getattr(self, name) is not None]
        if len(given) > 1:
            raise ConfigError(f"{' and '.join(given)} all give the pool's size; keep one of them.")
        for name in given:
            if getattr(self, name) < 1:
                raise ConfigError(f"{name} must be at least 1, not {getattr(self, name)}.")
        if self.load_format not in ("auto", "dummy"):
            raise ConfigError(f"load_format must be 'auto' or 'dummy', not {self.load_format!r}.")
        if self.journal_capacity is not None and self.journal_capacity < 1:
            raise ConfigError(f"journal_capacity must be at least 1 act, not {self.journal_capacity}; None keeps all.")
        if not 0 < self.gpu_memory_utilization <= 1:
            raise ConfigError(f"gpu_memory_utilization must lie in (0, 1], not {self.gpu_memory_utilization}.")
