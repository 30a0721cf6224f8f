"""Putting an engine together: check first, then load the weights, then allocate the pool, once."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import torch

from pellucid.attention import AttentionBackend, KVStorage, attention_backend
from pellucid.engine.broadcast import Broadcast
from pellucid.engine.budget import Card, Needs, budget
from pellucid.engine.card import card_of, peak_bytes
from pellucid.engine.config import SchedulerConfig
from pellucid.engine.core import EngineCore
from pellucid.engine.memory import PoolSize, pool_size
from pellucid.engine.options import EngineOptions
from pellucid.engine.progress import progress
from pellucid.engine.rehearsal import rehearse
from pellucid.engine.scheduler import Scheduler
from pellucid.errors import ConfigError
from pellucid.imports import uncollected
from pellucid.kv.manager import KVManager
from pellucid.kv.memory import PoolMemory
from pellucid.kv.reader import KVReader
from pellucid.log import say
from pellucid.model import LoadedModel, Model, ModelConfig, Tokenizer, find, load, parse_device, parse_dtype
from pellucid.model.llama import weight_bytes
from pellucid.runtime.device_tables import DeviceTables
from pellucid.runtime.runner import Runner

if TYPE_CHECKING:
    from pellucid.runtime.device_runner import DeviceRunner


class Assembly(NamedTuple):
    """An engine ready to run, its reader, what it was made of, and whether its arithmetic is the same in any batch.

    ``options`` are the caller's, with what depends on the device filled in. ``broadcast`` tells other processes
    about the engine, None if nobody may watch.
    """

    core: EngineCore
    kv: KVReader
    tokenizer: Tokenizer | None
    pool: PoolSize
    loaded: LoadedModel
    batch_invariant: bool
    broadcast: Broadcast | None
    options: EngineOptions


def assemble(options: EngineOptions, loaded: LoadedModel | None) -> Assembly:
    """Build the engine that ``options`` describe, with the weights of ``loaded`` if they are here already.

    Raises `ConfigError`, `KernelError` and `ModelError`, whatever can be known beforehand before weights are read.
    """
    device = _device(options, loaded)
    options = options.on(str(device))
    dtype = parse_dtype(options.dtype, device, options.quantization)
    if loaded is not None:
        dtype = _same_dtype(options, loaded, dtype)
    checkpoint = None if loaded else find(options.model, seed=options.seed)
    source = loaded or checkpoint
    assert source is not None
    config = source.config
    attention = attention_backend(options.attention_backend, device, dtype, config.head_dim)
    attention.check(options.block_size, config.head_dim, config.num_heads, config.num_kv_heads, dtype, device)
    if device.type == "cuda" and _in_graphs(options, attention):
        from pellucid.runtime.compiling import prepare  # here, because most machines have no triton

        prepare(device.index)
    shape = (config.num_kv_heads, config.head_dim, dtype)
    block_bytes = KVStorage.bytes_per_block(config.num_layers, options.block_size, *shape)
    card = _card(device, loaded) if device.type == "cuda" else None
    if card is None:
        pool = pool_size(options, block_bytes, config.max_position)
    else:
        pool = budget(card, Needs(weight_bytes(config, dtype)), options, block_bytes, config.max_position).pool
    _scheduler(options, pool._replace(num_blocks=2), config)  # what it refuses is refused before weights are read
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
    if card is not None:
        measured = budget(card, _needs(options, loaded.model, attention), options, block_bytes, config.max_position)
        pool = measured.pool
        for line in measured.lines():
            say(line)
    with uncollected():  # a block is an object, and none of them is garbage
        scheduler = _scheduler(options, pool, config)
    broadcast = Broadcast(scheduler.kv, source.name) if _observed(options) else None
    storage = KVStorage(config.num_layers, pool.num_blocks, options.block_size, *shape, device)
    with _in_memory(options, "making tables and graphs"):
        runner = _runner(options, loaded.model, storage, attention, pool.max_model_len)
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
        options=options,
    )


def _device(options: EngineOptions, loaded: LoadedModel | None) -> torch.device:
    """Where to run: weights that are here already stay where they are."""
    if loaded is None:
        return parse_device(options.device)
    place = loaded.model.device
    if options.device != "auto" and parse_device(options.device) != place:
        raise ConfigError(f"device={options.device!r}, and the loaded weights are on {place}; load them anew by name.")
    return place


def _card(device: torch.device, loaded: LoadedModel | None) -> Card:
    """The card as if it held nothing of this engine: weights that are there already are counted among its needs."""
    card = card_of(device)
    return card if loaded is None else card._replace(used=card.used - loaded.model.weight_bytes)


def _needs(options: EngineOptions, model: Model, attention: AttentionBackend) -> Needs:
    samples, tokens = options.limits
    longest = options.max_model_len or model.config.max_position
    in_graphs = _in_graphs(options, attention)
    with torch.cuda.device(model.device), _in_memory(options, "in a rehearsal of the largest step"):
        if in_graphs:
            _compile(options, model.shallow(), attention, longest)
        largest_step = partial(rehearse, model, attention, options.block_size, tokens, samples)
        activations = peak_bytes(model.device, largest_step)
    graphs = activations if in_graphs else 0
    tables = samples * DeviceTables.bytes_per_line(longest, options.block_size)
    return Needs(model.weight_bytes, activations, graphs, tables)


def _in_graphs(options: EngineOptions, attention: AttentionBackend) -> bool:
    """Whether a step on a card is a graph."""
    return attention.name == "triton" and not options.enforce_eager


def _compile(options: EngineOptions, model: Model, attention: AttentionBackend, max_model_len: int) -> None:
    """Compile, together, all that rehearsal and steps launch, none of which depends on the size of the pool."""
    from pellucid.runtime.compiling import compile_ahead  # here, because most machines have no triton

    config, (samples, tokens) = model.config, options.limits
    shape = (config.num_kv_heads, config.head_dim, model.dtype)
    storage = KVStorage(config.num_layers, 1, options.block_size, *shape, model.device)
    runner = _device_runner(options, model, storage, attention, max_model_len)

    def work() -> None:
        rehearse(model, attention, options.block_size, tokens, samples)
        runner.every_step()

    compile_ahead(work)


@contextmanager
def _in_memory(options: EngineOptions, what: str) -> Iterator[None]:
    """Raises `ConfigError` where the card runs out of memory, with what would need less."""
    try:
        yield
    except torch.OutOfMemoryError as error:
        requests, tokens = options.limits
        share = options.gpu_memory_utilization
        raise ConfigError(
            f"the GPU ran out of memory {what} ({str(error).splitlines()[0]}): lower max_num_batched_tokens={tokens}, "
            f"max_num_seqs={requests} or gpu_memory_utilization={share:g}, or do without graphs (enforce_eager=True)."
        ) from error


def _runner(
    options: EngineOptions, model: Model, storage: KVStorage, attention: AttentionBackend, max_model_len: int
) -> Runner | DeviceRunner:
    """The one for a GPU wherever attention asks the host for nothing: in Triton's interpreter it runs as well."""
    if attention.name != "triton":
        compiled, eos = model.ops.name == "compiled", model.config.eos_token_ids
        return Runner(model, storage, attention, eos_token_ids=eos, seed=options.seed, compiled_sampling=compiled)
    runner = _device_runner(options, model, storage, attention, max_model_len)
    if runner.graphs and not options.lazy_graphs:
        with progress("Capturing graphs", runner.graphs) as done:
            runner.capture(done)
    return runner


def _device_runner(
    options: EngineOptions, model: Model, storage: KVStorage, attention: AttentionBackend, max_model_len: int
) -> DeviceRunner:
    from pellucid.runtime.device_runner import DeviceRunner  # here, because most machines have no triton

    return DeviceRunner(
        model,
        storage,
        attention,
        max_num_seqs=options.limits.requests,
        max_num_batched_tokens=options.limits.tokens,
        max_model_len=max_model_len,
        eos_token_ids=model.config.eos_token_ids,
        seed=options.seed,
        enforce_eager=options.enforce_eager,
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


def _scheduler(options: EngineOptions, pool: PoolSize, model: ModelConfig) -> Scheduler:
    config = SchedulerConfig(
        max_model_len=pool.max_model_len,
        max_num_seqs=options.limits.requests,
        max_num_batched_tokens=options.limits.tokens,
        scheduling_policy=options.scheduling_policy,
        watermark=options.watermark,
        eos_token_ids=model.eos_token_ids,
        vocab_size=model.vocab_size,
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
