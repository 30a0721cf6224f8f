"""RMSNorm of rows, and of heads, in one pass."""

from __future__ import annotations

from typing import NamedTuple

import torch
import triton
import triton.language as tl

from pellucid.triton_launch import announce, await_input, chained


class Unscaled(NamedTuple):
    """Rows ``x`` [T, K] of which a product was made as they are, though RMSNorm without weights should have come first.

    That is a factor of each row, and the product's numbers can be multiplied by it as well.
    """

    x: torch.Tensor
    eps: float


@triton.jit
def factor(x, eps, K: tl.constexpr):
    """What RMSNorm multiplies ``x`` by: a row of K numbers, zeros behind them."""
    wide = x.to(tl.float32)
    return tl.rsqrt(tl.sum(wide * wide, 0) / K + eps)


@triton.jit
def factor_at(row, eps, K: tl.constexpr, WIDTH: tl.constexpr):
    """The same, of the row that begins at ``row``."""
    k = tl.arange(0, WIDTH)
    return factor(tl.load(row + k, mask=k < K, other=0.0), eps, K)


@triton.jit
def normed(x, scale, weight):
    """RMSNorm of ``x`` times ``scale`` times ``weight``, rounded before the weight is applied, and after."""
    rounded = (x.to(tl.float32) * scale).to(x.dtype)
    return (rounded.to(tl.float32) * weight.to(tl.float32)).to(x.dtype)


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
    out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    width, heads = x.shape[-1], x.shape[1] if x.dim() == 3 else 1
    rows = x.numel() // width
    if rows:
        padded = triton.next_power_of_2(width)
        norm_kernel[(rows,)](
            x, x.stride(0), x.stride(-2), heads, x if weight is None else weight, out, eps, width, padded,
            WEIGHTED=weight is not None, num_warps=min(max(padded // 512, 1), 8), **chained(x.device),
        )  # fmt: skip
    return out
