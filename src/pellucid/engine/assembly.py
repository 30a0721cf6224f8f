"""Putting an engine together: check first, then load the weights, then allocate the pool, once."""

from __future__ import annotations

import os
from typing import NamedTuple

import torch

from pellucid.attention import KVStorage, attention_backend
from pellucid.engine.broadcast import Broadcast
from pellucid.engine.config import SchedulerConfig
from pellucid.engine.core import EngineCore
from pellucid.engine.memory import PoolSize, pool_size
from pellucid.engine.options import EngineOptions
from pellucid.engine.scheduler import Scheduler
from pellucid.errors import ConfigError
from pellucid.kv.manager import KVManager
from pellucid.kv.memory import PoolMemory
from pellucid.kv.reader import KVReader
from pellucid.log import say
from pellucid.model import LoadedModel, Tokenizer, find, load, parse_device, parse_dtype
from pellucid.runtime.runner import Runner


class Assembly(NamedTuple):
    """An engine ready to run, its reader, what it was made of, and whether its arithmetic is the same in any batch.

    ``broadcast`` tells other processes about it, None if nobody may watch.
    """

    core: EngineCore
    kv: KVReader
    tokenizer: Tokenizer | None
    pool: PoolSize
    loaded: LoadedModel
    batch_invariant: bool
    broadcast: Broadcast | None


def assemble(options: EngineOptions, loaded: LoadedModel | None) -> Assembly:
    """Build the engine that ``options`` describe, with the weights of ``loaded`` if they are here already.

    Raises `ConfigError` and `ModelError`, whatever can be known beforehand before weights are read.
    """
    device = parse_device("cpu" if options.device == "auto" else options.device)
    if device.type != "cpu":
        raise ConfigError(f"device {options.device!r} is not supported yet: this version runs on the CPU.")
    dtype = parse_dtype(options.dtype, device, options.quantization)
    if loaded is not None:
        dtype = _same_dtype(options, loaded, dtype)
    checkpoint = None if loaded else find(options.model, seed=options.seed)
    source = loaded or checkpoint
    assert source is not None
    config = source.config
    attention = attention_backend(options.attention_backend, device, dtype, config.head_dim)
    attention.check(options.block_size, config.head_dim, config.num_heads, config.num_kv_heads)
    shape = (config.num_kv_heads, config.head_dim, dtype)
    block_bytes = KVStorage.bytes_per_block(config.num_layers, options.block_size, *shape)
    pool = pool_size(options, block_bytes, config.max_position)
    scheduler = _scheduler(options, pool, config.eos_token_ids, config.vocab_size)
    if loaded is None:
        assert checkpoint is not None
        loaded = load(
            checkpoint,
            dtype=dtype,
            device=str(device),
            load_format=options.load_format,
            seed=options.seed,
            quantization=options.quantization,
            kernels=options.kernels,
        )
    broadcast = Broadcast(scheduler.kv, source.name) if _observed(options) else None
    storage = KVStorage(config.num_layers, pool.num_blocks, options.block_size, *shape, device)
    runner = Runner(
        loaded.model,
        storage,
        attention,
        eos_token_ids=config.eos_token_ids,
        seed=options.seed,
        compiled_sampling=loaded.model.ops.name == "compiled",
    )
    say(_summary(options, source.name, pool))
    say(_arithmetic(loaded, attention.name))
    return Assembly(
        core=EngineCore(scheduler, runner, turn=broadcast),
        kv=KVReader(scheduler.kv, lambda: PoolMemory(runner.pool_address, runner.pool_bytes)),
        tokenizer=None if options.skip_tokenizer_init else loaded.tokenizer,
        pool=pool,
        loaded=loaded,
        batch_invariant=loaded.model.batch_invariant and attention.batch_invariant,
        broadcast=broadcast,
    )


def _same_dtype(options: EngineOptions, loaded: LoadedModel, asked: torch.dtype) -> torch.dtype:
    """Weights that are here already are taken as they are, so options may not ask for others."""
    if options.load_format != "auto":
        raise ConfigError(f"load_format={options.load_format!r} has no meaning for weights that are loaded already.")
    if options.dtype != "auto" and asked != loaded.model.dtype:
        raise ConfigError(
            f"dtype={options.dtype!r}, and the loaded weights are {loaded.model.dtype}; load them anew by name."
        )
    if options.quantization and not loaded.model.quantised:
        raise ConfigError(
            f"quantization={options.quantization!r}, and the loaded weights are not quantised; load them anew by name."
        )
    if options.kernels not in ("auto", loaded.model.ops.name):
        raise ConfigError(
            f"kernels={options.kernels!r}, and the loaded weights are for {loaded.model.ops.name}; "
            "load them anew by name."
        )
    return loaded.model.dtype


def _scheduler(options: EngineOptions, pool: PoolSize, eos: tuple[int, ...], vocab_size: int) -> Scheduler:
    config = SchedulerConfig(
        max_model_len=pool.max_model_len,
        max_num_seqs=options.max_num_seqs,
        max_num_batched_tokens=options.max_num_batched_tokens,
        scheduling_policy=options.scheduling_policy,
        watermark=options.watermark,
        eos_token_ids=eos,
        vocab_size=vocab_size,
    )
    kv = KVManager(
        pool.num_blocks,
        options.block_size,
        enable_prefix_caching=options.enable_prefix_caching,
        reuse_policy=options.reuse_policy,
        shuffle_blocks=options.shuffle_blocks,
        journal_capacity=options.journal_capacity,
        verify_hits=options.verify_prefix_hits,
    )
    return Scheduler(kv, config)


def _observed(options: EngineOptions) -> bool:
    if options.observe is not None:
        return options.observe
    return os.environ.get("PELLUCID_OBSERVE", "") not in ("", "0")


def _arithmetic(loaded: LoadedModel, attention: str) -> str:
    model = loaded.model
    kept = "4- and 8-bit weights as they are in the file, computed in " if model.quantised else ""
    return f"{kept}{str(model.dtype).removeprefix('torch.')}, {model.ops.why}; {attention} attention"


def _summary(options: EngineOptions, name: str, pool: PoolSize) -> str:
    usable = pool.num_blocks - 1
    return (
        f"{name}: {pool.num_blocks} blocks of {options.block_size} tokens ({pool.why}), 1 reserved, {usable} usable = "
        f"{usable * options.block_size:,} tokens, {pool.nbytes / 1024**2:,.1f} MiB; max_model_len {pool.max_model_len}"
    )
