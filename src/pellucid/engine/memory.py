"""How much memory there is, how many blocks that makes, and how long a request may be."""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

from pellucid.engine.options import EngineOptions
from pellucid.errors import ConfigError

GIB = 1024**3
CGROUP_LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")


class PoolSize(NamedTuple):
    """A pool: blocks in all (block 0 included), bytes a block, and the longest request it serves."""

    num_blocks: int
    block_bytes: int
    max_model_len: int
    why: str

    @property
    def nbytes(self) -> int:
        return self.num_blocks * self.block_bytes


def process_memory() -> int:
    """Bytes this process may use: the machine's memory, or its control group's limit if that is less."""
    limits = [os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")]
    for path in CGROUP_LIMITS:
        try:
            limits.append(int(Path(path).read_text()))
        except (OSError, ValueError):  # not there, or "max"
            continue
    return min(limits)


def pool_size(options: EngineOptions, block_bytes: int, model_max_len: int) -> PoolSize:
    """The pool that ``options`` ask for on a CPU (on a GPU: see `pellucid.engine.budget`).

    Raises `ConfigError` if it is larger than the memory this process may use, holds no usable block,
    or if ``max_model_len`` is more than the model or the pool can hold.
    """
    memory = process_memory()
    bound = int(memory * options.gpu_memory_utilization)
    num_blocks, why = asked_blocks(options, block_bytes) or _default_blocks(block_bytes, bound, memory)
    if num_blocks * block_bytes > bound:
        raise ConfigError(
            f"{num_blocks} blocks of {block_bytes:,} bytes take {num_blocks * block_bytes / GIB:.2f} GiB, and "
            f"gpu_memory_utilization={options.gpu_memory_utilization} of {memory / GIB:.2f} GiB allows "
            f"{bound // block_bytes} blocks; ask for fewer."
        )
    return PoolSize(num_blocks, block_bytes, longest_request(options, num_blocks, block_bytes, model_max_len), why)


def asked_blocks(options: EngineOptions, block_bytes: int) -> tuple[int, str] | None:
    """Blocks in all, and by which option, if ``options`` give the pool an absolute size."""
    if options.num_gpu_blocks_override is not None:
        return options.num_gpu_blocks_override, "num_gpu_blocks_override"
    if options.kv_cache_tokens is not None:
        return -(-options.kv_cache_tokens // options.block_size) + 1, "kv_cache_tokens, and the reserved block"
    if options.kv_cache_memory_bytes is not None:
        return options.kv_cache_memory_bytes // block_bytes, "kv_cache_memory_bytes"
    return None


def _default_blocks(block_bytes: int, bound: int, memory: int) -> tuple[int, str]:
    size, why = min(
        (GIB, "1 GiB, the default on a CPU"),
        (memory // 10, "a tenth of memory, the default on a CPU with less than 10 GiB"),
        (bound, "gpu_memory_utilization"),
    )
    return size // block_bytes, why


def longest_request(options: EngineOptions, num_blocks: int, block_bytes: int, model_max_len: int) -> int:
    """The most tokens of a request: ``max_model_len``, or else what the model and a pool of ``num_blocks`` hold.

    Raises `ConfigError` for a pool without a usable block, and for a ``max_model_len`` beyond the model or the pool.
    """
    if num_blocks < 2:
        raise ConfigError(
            f"a pool of {num_blocks} block(s) has none that requests can use, as block 0 is reserved; "
            f"give it at least 2 blocks ({2 * block_bytes:,} bytes)."
        )
    room = (num_blocks - 1) * options.block_size
    if room < 2:
        raise ConfigError(
            f"a pool of {room} usable slot cannot hold a prompt and its KV; give it more blocks, or larger ones than "
            f"block_size={options.block_size}."
        )
    asked = options.max_model_len
    if asked is None:
        return min(model_max_len, room)
    refuse_beyond_model(options, model_max_len)
    if asked > room:
        needed = -(-asked // options.block_size) + 1
        raise ConfigError(
            f"max_model_len={asked} needs {needed} blocks, and the pool has {num_blocks} ({num_blocks - 1} usable); "
            f"the largest that fits is {room}: lower it, or give the pool {needed} blocks."
        )
    return asked


def refuse_beyond_model(options: EngineOptions, model_max_len: int) -> None:
    """Raises `ConfigError` for a ``max_model_len`` of more tokens than the model was made for."""
    asked = options.max_model_len
    if asked is not None and asked > model_max_len:
        raise ConfigError(f"max_model_len={asked} is more than the model's {model_max_len}; lower it to that.")
