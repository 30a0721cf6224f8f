"""silu(gate) · up of a product that is there already."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from pellucid.triton_launch import announce, await_input, chained

BLOCK = 1024


@triton.jit
def gate_kernel(gate_up, out, N: tl.constexpr, BLOCK: tl.constexpr, PDL: tl.constexpr):
    announce(PDL)
    token = tl.program_id(0).to(tl.int64)
    columns = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    mask = columns < N
    await_input(PDL)
    gate = tl.load(gate_up + token * 2 * N + columns, mask=mask).to(tl.float32)
    up = tl.load(gate_up + token * 2 * N + N + columns, mask=mask).to(tl.float32)
    tl.store(out + token * N + columns, (gate * tl.sigmoid(gate) * up).to(out.dtype.element_ty), mask=mask)


def gated(gate_up: torch.Tensor) -> torch.Tensor:
    """[T, 2 inner], contiguous, the gate before up, to [T, inner]."""
    tokens, inner = len(gate_up), gate_up.shape[1] // 2
    out = torch.empty((tokens, inner), dtype=gate_up.dtype, device=gate_up.device)
    if tokens:
        grid = (tokens, triton.cdiv(inner, BLOCK))
        gate_kernel[grid](gate_up, out, inner, BLOCK, **chained(out.device))
    return out
