"""Heads as a product leaves them, and what is still to be done to them: scaling, bias, norm, and turning.

Rotary position embedding (Su et al. 2021, arXiv:2104.09864), half-split: number i of a head turns with i + D/2.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import triton
import triton.language as tl


class Unscaled(NamedTuple):
    """Rows ``x`` [T, K] of which a product was made as they are, though RMSNorm without weights should have come first.

    That is a factor of each row, and the product's numbers can be multiplied by it as well.
    """

    x: torch.Tensor
    eps: float


class Unturned(NamedTuple):
    """The heads of T tokens, ``packed`` [T, (H + 2 Hkv) · D]: queries, keys, then values, as the product left them.

    If they are ``unscaled``, the factors of those rows come first, and then their ``bias`` [(H + 2 Hkv) · D], if there
    is one. Queries and keys are normed, with ``eps`` and the weights ``norms`` [D] of either, if there are any, and
    turn by the angles of ``cos`` and ``sin``, float32 [T, D/2].
    """

    packed: torch.Tensor
    cos: torch.Tensor
    sin: torch.Tensor
    norms: tuple[torch.Tensor, torch.Tensor] | None = None
    eps: float = 0.0
    unscaled: Unscaled | None = None
    bias: torch.Tensor | None = None


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


@triton.jit
def turned(first, second, cos, sin):
    """A pair by its angle. (`pellucid.attention.triton_turn.turned_heads` does it number by number.)"""
    return first * cos - second * sin, second * cos + first * sin
