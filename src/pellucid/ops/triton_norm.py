"""RMSNorm of rows, and of heads, in one pass."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from pellucid.triton_bulk import roomy
from pellucid.triton_heads import factor, normed
from pellucid.triton_launch import announce, await_input, chained


@triton.jit(do_not_specialize=["heads"])
def norm_kernel(
    x, token_stride, head_stride, heads, weight, out, eps, K: tl.constexpr, WIDTH: tl.constexpr,
    WEIGHTED: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    announce(PDL)
    row = tl.program_id(0).to(tl.int64)
    k = tl.arange(0, WIDTH)
    if WEIGHTED:
        g = tl.load(weight + k, mask=k < K, other=0.0)
    await_input(PDL)
    source = x + row // heads * token_stride + row % heads * head_stride
    values = tl.load(source + k, mask=k < K, other=0.0)
    scale = factor(values, eps, K)
    values = normed(values, scale, g) if WEIGHTED else (values.to(tl.float32) * scale).to(values.dtype)
    tl.store(out + row * K + k, values, mask=k < K)


def rms_norm(x: torch.Tensor, weight: torch.Tensor | None, eps: float) -> torch.Tensor:
    """[T, K] or [T, heads, K], its rows anywhere, to a new tensor of its shape; no ``weight`` is one of ones."""
    out = roomy(x.shape, x)
    width, heads = x.shape[-1], x.shape[1] if x.dim() == 3 else 1
    rows = x.numel() // width
    if rows:
        padded = triton.next_power_of_2(width)
        norm_kernel[(rows,)](
            x, x.stride(0), x.stride(-2), heads, x if weight is None else weight, out, eps, width, padded,
            WEIGHTED=weight is not None, num_warps=min(max(padded // 512, 1), 8), **chained(x.device),
        )  # fmt: skip
    return out
