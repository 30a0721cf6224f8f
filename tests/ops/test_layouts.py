"""Matrices that lie otherwise than row after row, and gates of another kind than what they gate."""

from __future__ import annotations

import torch
from matrices import random_matrix

from pellucid.ops import Ops, PlainOps


def test_a_transposed_matrix(ops: Ops, draw: torch.Generator) -> None:
    across = torch.randn((64, 96), generator=draw).to(ops.dtype).T
    x = torch.randn((5, 64), generator=draw).to(ops.dtype)
    assert not across.is_contiguous()
    assert torch.equal(ops.linear([across])(x), ops.linear([across.contiguous()])(x))


def test_a_gate_of_another_kind(ops: Ops, draw: torch.Generator) -> None:
    gate, up = random_matrix("q4_1", (64, 64), ops.dtype, draw), random_matrix("q8_0", (64, 64), ops.dtype, draw)
    x = torch.randn((3, 64), generator=draw).to(ops.dtype)
    expected = PlainOps(ops.dtype).gated(gate, up)(x)
    torch.testing.assert_close(ops.gated(gate, up)(x), expected, rtol=0.1, atol=0.1 * expected.abs().max().item())
