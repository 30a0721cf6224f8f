"""cos and sin of near and far positions, of the kernel and of plain torch, beside float64."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext

import pytest
import torch

from guarded_memory import guarded_memory
from pellucid.model.rope import frequencies
from pellucid.ops import Ops, PlainOps
from pellucid.ops.triton import TritonOps

FARTHEST = 2**20
UNIT = 2.0**-24
"""The last place of a float32 just below 1: CUDA's cos and sin are at most 2 of them off, a processor's up to 4."""


@pytest.fixture(autouse=True)
def _guarded(device: torch.device) -> Iterator[None]:
    """Every new tensor is NaN until it is written to, and no kernel writes beyond its ends."""
    with guarded_memory() if device.type == "cpu" else nullcontext():
        yield


@pytest.mark.parametrize("turns", [1, 24, 33, 64])
@pytest.mark.parametrize("tokens", [1, 7, 300])
@pytest.mark.parametrize("ops", [TritonOps, PlainOps])
def test_angles(ops: type[Ops], tokens: int, turns: int, draw: torch.Generator, device: torch.device) -> None:
    """Less than a program, more than one, and not a whole number of them."""
    positions = torch.randint(FARTHEST, (tokens,), generator=draw).to(device)
    scale = frequencies(2 * turns, 10000.0, None).to(device)
    check(ops(torch.float32), positions, scale)


@pytest.mark.parametrize("ops", [TritonOps, PlainOps])
def test_the_nearest_and_the_farthest_position(ops: type[Ops], device: torch.device) -> None:
    positions = torch.tensor([0, 1, 131071, 131072, FARTHEST], device=device)
    cos, sin = check(ops(torch.float32), positions, frequencies(10, 10000.0, None).to(device))
    assert torch.equal(cos[0], torch.ones_like(cos[0]))
    assert torch.equal(sin[0], torch.zeros_like(sin[0]))


def check(ops: Ops, positions: torch.Tensor, scale: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The angle is the product in float32; of that, cos and sin are as good as float32 can be."""
    cos, sin = ops.angles(positions, scale)
    exact = (positions[:, None].float() * scale).double()
    for found, expected in ((cos, exact.cos()), (sin, exact.sin())):
        assert found.dtype is torch.float32
        assert found.is_contiguous()
        torch.testing.assert_close(found.double(), expected, rtol=0, atol=4 * UNIT)
    return cos, sin


def test_no_tokens(device: torch.device) -> None:
    none = torch.zeros(0, dtype=torch.int64, device=device)
    cos, sin = TritonOps(torch.float32).angles(none, torch.ones(5, device=device))
    assert cos.shape == sin.shape == (0, 5)
