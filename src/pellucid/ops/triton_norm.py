"""RMSNorm of rows, and of heads, in one pass."""

from __future__ import annotations

from typing import NamedTuple

import torch
import triton
import triton.language as tl

from pellucid.triton_launch import announce, await_input, chained


class NormedRows(NamedTuple):
    """Rows ``x`` [T, K] that a product takes through RMSNorm.

    ``weighted`` [T, K]: ``x`` times ``norm``, if the product before has made that on its way. RMSNorm is the same but
    for a factor of each row, which the product's numbers can be multiplied by as well.
    """

    x: torch.Tensor
    norm: torch.Tensor
    eps: float
    weighted: torch.Tensor | None = None


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
    x, token_stride, head_stride, heads, weight, out, eps, K: tl.constexpr, WIDTH: tl.constexpr, PDL: tl.constexpr
):
    announce(PDL)
    row = tl.program_id(0).to(tl.int64)
    k = tl.arange(0, WIDTH)
    g = tl.load(weight + k, mask=k < K, other=0.0)
    await_input(PDL)
    source = x + row // heads * token_stride + row % heads * head_stride
    values = tl.load(source + k, mask=k < K, other=0.0)
    tl.store(out + row * K + k, normed(values, factor(values, eps, K), g), mask=k < K)


def rms_norm(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    """[T, K] or [T, heads, K], its rows anywhere, to a new tensor of its shape."""
    out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    width, heads = x.shape[-1], x.shape[1] if x.dim() == 3 else 1
    rows = x.numel() // width
    if rows:
        padded = triton.next_power_of_2(width)
        norm_kernel[(rows,)](
            x, x.stride(0), x.stride(-2), heads, weight, out, eps, width, padded,
            num_warps=min(max(padded // 512, 1), 8), **chained(x.device),
        )  # fmt: skip
    return out
