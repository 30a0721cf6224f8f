"""A request's heads straight from the product of q, k and v, for attention that turns them itself.

What is loaded and what is done with it are apart, so that all loads can be under way before one of them is waited for.
"""

import triton
import triton.language as tl

from pellucid.triton_heads import normed


@triton.jit
def partner(i, DIM: tl.constexpr):
    """The number that number ``i`` of a head turns with."""
    return tl.where(i < DIM // 2, i + DIM // 2, i - DIM // 2)


@triton.jit
def beside(heads, i, there, DIM: tl.constexpr):
    """Numbers ``i`` of the heads that begin at ``heads`` [n, 1], and their partners: [n, numbers] each."""
    own = tl.load(heads + i[None, :], mask=there, other=0.0)
    return own, tl.load(heads + partner(i, DIM)[None, :], mask=there, other=0.0)


@triton.jit
def norm_weights(norm, i, there, without, NORM: tl.constexpr, DIM: tl.constexpr):
    """Those of numbers ``i`` and of their partners; ``without`` norm, that, as something must be returned."""
    own, other = without, without
    if NORM:
        own = tl.load(norm + i, mask=there, other=0.0)
        other = tl.load(norm + partner(i, DIM), mask=there, other=0.0)
    return own, other


@triton.jit
def places(head, i, newest, GROUP: tl.constexpr, PADDED_GROUP: tl.constexpr, KV_HEADS: tl.constexpr, DIM: tl.constexpr):
    """Where, among the heads of a token, the queries [PADDED_GROUP, 1] of the KV head ``head`` begin, the last of them
    over and over behind GROUP, and its key and value [1, 1]; and which numbers of either are there."""
    queries = (head * GROUP + tl.minimum(tl.arange(0, PADDED_GROUP), GROUP - 1))[:, None] * DIM
    key = (GROUP * KV_HEADS + head + tl.arange(0, 1))[:, None] * DIM
    return queries, key, key + KV_HEADS * DIM, (i < DIM)[None, :], (newest & (i < DIM))[None, :]


@triton.jit
def finished(x, bias, i, there, scale, BIAS: tl.constexpr):
    """Numbers ``i`` of heads as the product should have left them: scaled, and with the ``bias`` [n, 1]; float32."""
    x = x.to(tl.float32) * scale
    if BIAS:
        x += tl.load(bias + i[None, :], mask=there, other=0.0).to(tl.float32)
    return x


@triton.jit
def turned_heads(
    heads, bias, i, there, scale, weights, eps, cos, sin, DIM: tl.constexpr, BIAS: tl.constexpr, NORM: tl.constexpr
):
    """``heads``, as from `beside`, normed and turned: float32. ``weights`` are from `norm_weights`, ``cos`` and ``sin``
    [numbers] those of the pair that a number is of."""
    own = finished(heads[0], bias, i, there, scale, BIAS)
    other = finished(heads[1], bias, partner(i, DIM), there, scale, BIAS)
    if NORM:
        norm = tl.rsqrt(tl.sum(own * own, 1) / DIM + eps)[:, None]
        own, other = normed(own, norm, weights[0][None, :]), normed(other, norm, weights[1][None, :])
    return own * cos[None, :] + other * tl.where(i < DIM // 2, -sin, sin)[None, :]


@triton.jit
def over_and_over(rows, COUNT: tl.constexpr, WIDTH: tl.constexpr, ROWS: tl.constexpr):
    """``rows`` [COUNT, WIDTH] until there are [ROWS, WIDTH]."""
    return tl.reshape(tl.broadcast_to(rows[None, :, :], (ROWS // COUNT, COUNT, WIDTH)), (ROWS, WIDTH))


@triton.jit
def with_newest(queries, key, value, newest, scale, ROWS: tl.constexpr, COUNT: tl.constexpr, WIDTH: tl.constexpr):
    """Queries [COUNT, WIDTH] as [ROWS, WIDTH], and sums, peak and total as `attend_keys` leaves them of one key, the
    newest; or of none."""
    score = tl.sum(queries.to(tl.float32) * key.to(tl.float32), 1)[:, None] * scale
    peak = tl.where(newest, tl.reshape(over_and_over(score, COUNT, 1, ROWS), (ROWS,)), float("-inf"))
    total = tl.where(newest, tl.full([ROWS], 1.0, tl.float32), 0.0)
    acc = tl.broadcast_to(value.to(tl.float32), (ROWS, WIDTH))
    return over_and_over(queries, COUNT, WIDTH, ROWS), acc, peak, total
