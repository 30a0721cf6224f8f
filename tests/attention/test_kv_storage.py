from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch

from pellucid.attention import KVStorage
from pellucid.errors import ConfigError


def small(dtype: torch.dtype = torch.float32) -> KVStorage:
    return KVStorage(layers=2, num_blocks=5, block_size=4, num_kv_heads=3, head_dim=8, dtype=dtype)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_size_is_blocks_times_bytes_per_block(dtype: torch.dtype) -> None:
    storage = small(dtype)
    assert storage.nbytes == 5 * KVStorage.bytes_per_block(2, 4, 3, 8, dtype) == 5 * 2 * 2 * 4 * 3 * 8 * dtype.itemsize
    assert storage.tensor.shape == (2, 2, 5, 4, 3, 8)
    assert not storage.tensor.any()


def test_layers_are_views_of_the_one_tensor() -> None:
    storage = small()
    for layer in range(2):
        k, v = storage.layer(layer)
        k.fill_(10 * layer + 1)
        v.fill_(10 * layer + 2)
        assert k.shape == v.shape == (5, 4, 3, 8)
    assert (
        storage.tensor.amax((2, 3, 4, 5)).tolist() == storage.tensor.amin((2, 3, 4, 5)).tolist() == [[1, 2], [11, 12]]
    )
    assert storage.layer(0)[0].data_ptr() == storage.address


def test_copies_follow_one_another_and_touch_nothing_else() -> None:
    storage = small()
    storage.tensor.copy_(torch.randn(storage.tensor.shape, generator=torch.Generator().manual_seed(1)))
    before, address = storage.tensor.clone(), storage.address
    storage.copy_blocks([(1, 3), (3, 4)])
    expected = [0, 1, 2, 1, 1]
    assert torch.equal(storage.tensor, before[:, :, expected])
    assert storage.address == address


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="resident memory is read from Linux's /proc")
def test_the_memory_is_had_at_once() -> None:
    """Resident memory grows by the whole pool when the pool is made, not when it is first written to."""
    before = resident_bytes()
    storage = KVStorage(1, 1024, 16, 8, 64, torch.float32)
    assert storage.nbytes == 64 * 2**20
    assert resident_bytes() - before > 0.9 * storage.nbytes


@pytest.mark.parametrize("name", ["layers", "num_blocks", "block_size", "num_kv_heads", "head_dim"])
def test_sizes_below_one_are_refused(name: str) -> None:
    sizes = {"layers": 1, "num_blocks": 2, "block_size": 4, "num_kv_heads": 1, "head_dim": 8} | {name: 0}
    with pytest.raises(ConfigError, match=f"{name}=0"):
        KVStorage(**sizes, dtype=torch.float32)  # type: ignore[arg-type]


def test_more_memory_than_there_is_is_refused_with_the_numbers() -> None:
    with pytest.raises(ConfigError, match=r"1000000000000 blocks × 16,384 bytes = 16,384,000,000,000,000 bytes"):
        KVStorage(2, 10**12, 16, 2, 64, torch.float16)
