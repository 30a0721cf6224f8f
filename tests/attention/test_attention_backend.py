from __future__ import annotations

import pytest
import torch

from pellucid.attention import CompiledAttention, ReferenceAttention, attention_backend
from pellucid.errors import ConfigError
from pellucid.native import native


def test_by_name() -> None:
    assert isinstance(attention_backend("reference", "cpu"), ReferenceAttention)


@pytest.mark.parametrize(("dtype", "head_dim"), [(torch.float16, 64), (torch.float32, 512)])
def test_auto_takes_the_reference_where_nothing_faster_can(dtype: torch.dtype, head_dim: int) -> None:
    assert isinstance(attention_backend("auto", "cpu", dtype, head_dim), ReferenceAttention)


@pytest.mark.skipif(native().kernels is None, reason=native().why)
def test_auto_takes_the_compiled_kernels_where_they_are() -> None:
    assert isinstance(attention_backend("auto", "cpu", torch.float32, 64), CompiledAttention)


def test_unknown_name_is_refused_with_the_known_ones() -> None:
    with pytest.raises(ConfigError, match=r"'flash'.*auto, compiled, reference"):
        attention_backend("flash")


@pytest.mark.parametrize("block_size", [2**i for i in range(9)])
def test_powers_of_two_are_block_sizes(block_size: int) -> None:
    ReferenceAttention().check(block_size, 64, 9, 3, torch.float32, torch.device("cpu"))


@pytest.mark.parametrize("block_size", [-16, 0, 3, 24, 255, 512])
def test_other_block_sizes_are_refused(block_size: int) -> None:
    with pytest.raises(
        ConfigError, match=f"block_size {block_size} is not supported; choose a power of two from 1 to 256"
    ):
        ReferenceAttention().check(block_size, 64, 9, 3, torch.float32, torch.device("cpu"))


def test_heads_must_share_evenly() -> None:
    with pytest.raises(ConfigError, match=r"9 query heads.* 2 KV heads"):
        ReferenceAttention().check(16, 64, 9, 2, torch.float32, torch.device("cpu"))
