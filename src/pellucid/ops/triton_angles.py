"""Cosine and sine of every angle that a step's tokens turn by, in one launch."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from pellucid.triton_launch import announce, await_input, chained

ANGLES = 128
"""Of one program, and of several tokens: one a thread."""


@triton.jit(do_not_specialize=["count"])
def angles_kernel(
    positions, frequencies, cos, sin, count, TURNS: tl.constexpr, ANGLES: tl.constexpr, PDL: tl.constexpr
):
    """Far positions are thousands of turns: cos and sin are the precise ones of CUDA, good at angles of any size."""
    announce(PDL)
    at = tl.program_id(0) * ANGLES + tl.arange(0, ANGLES)
    mask = at < count
    frequency = tl.load(frequencies + at % TURNS)
    await_input(PDL)
    angle = tl.load(positions + at // TURNS, mask=mask, other=0).to(tl.float32) * frequency
    tl.store(cos + at, tl.cos(angle), mask=mask)
    tl.store(sin + at, tl.sin(angle), mask=mask)


def angles(positions: torch.Tensor, frequencies: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """cos and sin of ``positions`` [T] times ``frequencies`` [D/2], both contiguous: float32 [T, D/2] each."""
    turns = len(frequencies)
    cos = torch.empty((len(positions), turns), dtype=torch.float32, device=positions.device)
    sin = torch.empty_like(cos)
    count = cos.numel()
    if count:
        grid = (triton.cdiv(count, ANGLES),)
        angles_kernel[grid](positions, frequencies, cos, sin, count, turns, ANGLES, **chained(cos.device))
    return cos, sin
