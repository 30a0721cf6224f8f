"""Matrices of unlike kinds in one product, and what weights take in memory."""

from __future__ import annotations

import itertools

import pytest
import torch
from matrices import EXACT, KINDS, UNIT, assert_close, exact, random_matrix, slack, wide
from test_products import gated_slack

from pellucid.ops import Ops, Quantised

PAIRS = list(itertools.product(KINDS, repeat=2))


@pytest.mark.parametrize("kinds", PAIRS, ids=["+".join(pair) for pair in PAIRS])
def test_stacked(ops: Ops, kinds: tuple[str, str], draw: torch.Generator) -> None:
    parts = [random_matrix(kind, (width, 64), ops.dtype, draw) for kind, width in zip(kinds, (24, 17), strict=True)]
    x = torch.randn((9, 64), generator=draw).to(ops.dtype)
    roundings = 1 if ops.name == "compiled" else 2
    assert_close(ops.linear(parts)(x), exact(parts, x), slack(ops, parts, x), roundings)


@pytest.mark.parametrize("kinds", PAIRS, ids=["+".join(pair) for pair in PAIRS])
def test_gated(ops: Ops, kinds: tuple[str, str], draw: torch.Generator) -> None:
    gate, up = (random_matrix(kind, (40, 64), ops.dtype, draw) for kind in kinds)
    x = torch.randn((9, 64), generator=draw).to(ops.dtype)
    expected = EXACT.gated(wide([gate]), wide([up]))(x.double())
    off = gated_slack(ops, gate, up, x)
    if kinds[0] != kinds[1]:  # rounded like one matrix, and in plain torch
        g, u = exact([gate], x).abs(), exact([up], x).abs()
        both = slack(ops, [gate, up], x) + UNIT[ops.dtype] * torch.cat((g, u), 1)
        g_off, u_off = both.chunk(2, 1)
        off = off + 1.1 * g_off * (u + u_off) + 1.1 * g * u_off + 4 * UNIT[ops.dtype] * expected.abs()
    assert_close(ops.gated(gate, up)(x), expected, off)


@pytest.mark.parametrize(("kind", "bits"), [("q4_0", 5.0), ("q4_1", 5.0), ("q8_0", 8.5)])
def test_quantised_weights_keep_their_size(kind: str, bits: float, compiled: Ops, draw: torch.Generator) -> None:
    """4 bits and two float16 for each 32 weights, or 8 bits and one; float32 operations have no use for them."""
    matrix = random_matrix(kind, (64, 96), torch.float32, draw)
    assert isinstance(matrix, Quantised)
    per_weight = bits if compiled.dtype is torch.bfloat16 else 32
    assert compiled.linear([matrix]).nbytes == compiled.vocabulary(matrix).nbytes == 64 * 96 * per_weight / 8
    assert compiled.gated(matrix, matrix).nbytes == 2 * 64 * 96 * per_weight / 8
