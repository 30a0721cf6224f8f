"""A request's heads straight from the product of q, k and v, for attention that turns them itself."""

import triton
import triton.language as tl

from pellucid.triton_heads import normed


@triton.jit
def partner(i, DIM: tl.constexpr):
    """The number that number ``i`` of a head turns with."""
    return tl.where(i < DIM // 2, i + DIM // 2, i - DIM // 2)


@triton.jit
def numbers(heads, bias, i, there, scale, BIAS: tl.constexpr):
    """Numbers ``i`` of the heads that begin at ``heads`` [n, 1], scaled, and with their bias: float32 [n, numbers]."""
    x = tl.load(heads + i[None, :], mask=there, other=0.0).to(tl.float32) * scale
    if BIAS:
        x += tl.load(bias + i[None, :], mask=there, other=0.0).to(tl.float32)
    return x


@triton.jit
def norm_weights(norm, i, without, NORM: tl.constexpr, DIM: tl.constexpr):
    """Those of numbers ``i`` and of their partners; ``without`` norm, that."""
    own, other = without, without
    if NORM:
        own = tl.load(norm + i, mask=i < DIM, other=0.0).to(tl.float32)
        other = tl.load(norm + partner(i, DIM), mask=i < DIM, other=0.0).to(tl.float32)
    return own, other


@triton.jit
def turned_heads(
    heads, bias, i, there, scale, own, other, eps, cos, sin, DIM: tl.constexpr, BIAS: tl.constexpr, NORM: tl.constexpr
):
    """`numbers`, normed and turned, each beside its partner. ``own`` and ``other`` are from `norm_weights`; ``cos`` and
    ``sin`` [numbers] are those of the pair that a number is of."""
    x = numbers(heads, bias, i, there, scale, BIAS)
    y = numbers(heads, bias, partner(i, DIM), there, scale, BIAS)
    if NORM:
        factor = tl.rsqrt(tl.sum(x * x, 1) / DIM + eps)[:, None]
        x, y = normed(x, factor, own[None, :]), normed(y, factor, other[None, :])
    return x * cos[None, :] + y * tl.where(i < DIM // 2, -sin, sin)[None, :]


@triton.jit
def turned_request(
    heads, bias, head, i, newest, scale, q_weights, k_weights, eps, cos, sin, GROUP: tl.constexpr,
    PADDED_GROUP: tl.constexpr, KV_HEADS: tl.constexpr, DIM: tl.constexpr, BIAS: tl.constexpr, NORM: tl.constexpr,
):  # fmt: skip
    """Of the request whose heads begin at ``heads``, float32: queries [PADDED_GROUP, numbers] of the KV head ``head``,
    the last of them over and over behind GROUP, and if ``newest``, its key and value [1, numbers]; else zeros."""
    members = (head * GROUP + tl.minimum(tl.arange(0, PADDED_GROUP), GROUP - 1))[:, None] * DIM
    there, mine = (i < DIM)[None, :], (newest & (i < DIM))[None, :]
    queries = turned_heads(
        heads + members, bias + members, i, there, scale, q_weights[0], q_weights[1], eps, cos, sin, DIM, BIAS, NORM
    )
    at = (GROUP * KV_HEADS + head + tl.arange(0, 1))[:, None] * DIM
    key = turned_heads(
        heads + at, bias + at, i, mine, scale, k_weights[0], k_weights[1], eps, cos, sin, DIM, BIAS, NORM
    )
    at += KV_HEADS * DIM
    value = numbers(heads + at, bias + at, i, mine, scale, BIAS)
    return queries, key, value


@triton.jit
def over_and_over(rows, COUNT: tl.constexpr, WIDTH: tl.constexpr, ROWS: tl.constexpr):
    """``rows`` [COUNT, WIDTH] until there are [ROWS, WIDTH]."""
    return tl.reshape(tl.broadcast_to(rows[None, :, :], (ROWS // COUNT, COUNT, WIDTH)), (ROWS, WIDTH))
