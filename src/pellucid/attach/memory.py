"""Where an observed vLLM keeps its keys and values, as far as its worker lives in this process."""

from __future__ import annotations

from typing import Any

from pellucid.kv.memory import PoolMemory

WORKER = ("model_executor", "driver_worker", "worker", "model_runner")
"""From the engine core to the runner that holds the tensors; its worker is in this process if there is one worker."""


def pool_memory(core: Any) -> PoolMemory | None:
    """The lowest address and all bytes of the KV tensors as they are now; None where they cannot be seen.

    vLLM has a tensor for each layer, or for several. Memory that two of them share is counted once.
    """
    runner = core
    for name in WORKER:
        runner = getattr(runner, name, None)
    storages: dict[int, int] = {}
    for tensor in _tensors(getattr(runner, "kv_caches", None)):
        storage = tensor.untyped_storage()
        storages[storage.data_ptr()] = storage.nbytes()
    return PoolMemory(min(storages), sum(storages.values())) if storages else None


def _tensors(caches: Any) -> list[Any]:
    """Some backends keep a list of tensors for a layer."""
    if isinstance(caches, list | tuple):
        return [tensor for each in caches for tensor in _tensors(each)]
    return [caches] if hasattr(caches, "untyped_storage") else []
