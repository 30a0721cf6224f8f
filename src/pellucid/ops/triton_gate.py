"""silu(gate) · up of a product that is there already."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from pellucid.triton_bulk import roomy
from pellucid.triton_heads import Unscaled, factor_at
from pellucid.triton_launch import announce, await_input, chained

BLOCK = 1024
SCALED_BLOCK = 4096
"""Outputs of a program that has a whole row to look at for its factor."""


@triton.jit
def gate_kernel(
    gate_up, x, x_stride, eps, out, N: tl.constexpr, K: tl.constexpr, WIDTH: tl.constexpr, BLOCK: tl.constexpr,
    SCALED: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """BLOCK outputs of one token; if SCALED, gate and up are first multiplied by the factor of its row of ``x``."""
    announce(PDL)
    token = tl.program_id(0).to(tl.int64)
    columns = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    mask = columns < N
    await_input(PDL)
    gate = tl.load(gate_up + token * 2 * N + columns, mask=mask).to(tl.float32)
    up = tl.load(gate_up + token * 2 * N + N + columns, mask=mask).to(tl.float32)
    if SCALED:
        scale = factor_at(x + token * x_stride, eps, K, WIDTH)
        gate, up = gate * scale, up * scale
    tl.store(out + token * N + columns, (gate * tl.sigmoid(gate) * up).to(out.dtype.element_ty), mask=mask)


def gated(gate_up: torch.Tensor, unscaled: Unscaled | None = None) -> torch.Tensor:
    """[T, 2 inner], contiguous, the gate before up, to [T, inner].

    ``unscaled``: the rows that ``gate_up`` is the product of; their factors are made up for.
    """
    tokens, inner = len(gate_up), gate_up.shape[1] // 2
    out = roomy((tokens, inner), gate_up)
    if tokens:
        x, eps = unscaled or (gate_up, 0.0)
        width, block = x.shape[1], min(triton.next_power_of_2(inner), SCALED_BLOCK) if unscaled else BLOCK
        gate_kernel[(tokens, triton.cdiv(inner, block))](
            gate_up, x, x.stride(0), eps, out, inner, width, triton.next_power_of_2(width), block,
            SCALED=unscaled is not None, num_warps=8 if block > BLOCK else 4, **chained(out.device),
        )  # fmt: skip
    return out
