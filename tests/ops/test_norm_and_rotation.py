"""Norms and rotations of every set of operations against exact ones, on the slices that a model hands over."""

from __future__ import annotations

import pytest
import torch
from matrices import EXACT, UNIT, assert_close, strided

from pellucid.ops import Ops

EPS = 1e-5


def in_between(ops: Ops) -> float:
    """What torch rounds on the way; the compiled kernels round once, at the end."""
    return UNIT[torch.float32] if ops.name == "compiled" else UNIT[ops.dtype]


@pytest.mark.parametrize("width", [1, 8, 15, 16, 33, 64, 80, 576, 1000])
@pytest.mark.parametrize("rows", [1, 3, 40])
def test_norm_of_rows(ops: Ops, rows: int, width: int, draw: torch.Generator) -> None:
    x = (torch.randn((rows, width), generator=draw) * 3 + 0.5).to(ops.dtype)
    weight = (1 + torch.randn(width, generator=draw) / 4).to(ops.dtype)
    check_norm(ops, strided(x), weight)


@pytest.mark.parametrize("dim", [8, 16, 64, 96, 128])
def test_norm_of_heads(ops: Ops, dim: int, draw: torch.Generator) -> None:
    """q and k of a packed product: [T, H, D] with other heads between the tokens."""
    heads = torch.randn((7, 8, dim), generator=draw).to(ops.dtype)
    weight = (1 + torch.randn(dim, generator=draw) / 4).to(ops.dtype)
    before = heads.clone()
    for mine in heads.split((5, 2, 1), dim=1):
        check_norm(ops, mine, weight)
    assert torch.equal(heads, before)


def check_norm(ops: Ops, x: torch.Tensor, weight: torch.Tensor) -> None:
    """The exact one is in float32 up to its last step: n roundings in the sum of squares, halved by the root."""
    expected = EXACT.rms_norm(x.double(), weight.double(), EPS)
    off = (x.shape[-1] / 2 + 8) * UNIT[torch.float32] + in_between(ops)
    assert_close(ops.rms_norm(x, weight, EPS), expected, off * expected.abs())


def test_norm_of_zeros_is_zeros(ops: Ops) -> None:
    assert not ops.rms_norm(torch.zeros(2, 40, dtype=ops.dtype), torch.ones(40, dtype=ops.dtype), EPS).any()


@pytest.mark.parametrize("dim", [2, 8, 16, 34, 64, 80, 96, 128, 256])
@pytest.mark.parametrize("rows", [1, 3, 40])
def test_rotation(ops: Ops, rows: int, dim: int, draw: torch.Generator) -> None:
    """q and k turn, v behind them does not, and every token turns by its own angles."""
    heads = torch.randn((rows, 6, dim), generator=draw).to(ops.dtype)
    angles = torch.rand((rows, dim // 2), generator=draw) * 1000
    cos, sin = angles.cos(), angles.sin()
    expected = heads[:, :4].double().clone()
    EXACT.rotate(expected, cos, sin)
    values = heads[:, 4:].clone()
    ops.rotate(heads[:, :4], cos, sin)
    first, second = expected.abs().chunk(2, -1)
    size = (first.square() + second.square()).sqrt().repeat(1, 1, 2)  # of each pair; no sum of two parts is longer
    assert_close(heads[:, :4], expected, 2 * (in_between(ops) * 2 + UNIT[torch.float32]) * size)
    assert torch.equal(heads[:, 4:], values)
