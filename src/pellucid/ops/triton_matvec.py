"""One row times a weight matrix: each warp multiplies rows of the matrix two by two, and no warp waits for another.

A tile is [pairs, 2, steps, lanes]: the lanes of a warp stand side by side in a row of weights, the pairs are shared
out among the warps, and the steps of a row are all under way at once.
"""

from __future__ import annotations

import triton
import triton.language as tl

from pellucid.ops.triton_norm import normed

LANES = tl.constexpr(256)
"""Numbers that a warp reads side by side: 16 bytes of bfloat16 a lane."""


@triton.jit
def strand(base, start, K: tl.constexpr, DEPTH: tl.constexpr, PAIRS: tl.constexpr, EACH: tl.constexpr):
    """Numbers ``start`` to ``start + DEPTH`` of the rows at ``base`` ([PAIRS, 2, 1, 1], or one row for all); 0 from K on.

    Each warp loads what it needs, even where all need the same: nothing has to pass from one to another.
    """
    WIDTH: tl.constexpr = min(DEPTH, LANES)
    STEPS: tl.constexpr = DEPTH // WIDTH
    k = start + tl.arange(0, STEPS)[None, None, :, None] * WIDTH + tl.arange(0, WIDTH)[None, None, None, :]
    there = tl.broadcast_to(base + k, (PAIRS, EACH, STEPS, WIDTH))
    if K % DEPTH == 0:
        out = tl.load(there)
    else:
        out = tl.load(there, mask=tl.broadcast_to(k < K, (PAIRS, EACH, STEPS, WIDTH)), other=0.0)
    return out


@triton.jit
def row_scale(x, eps, K: tl.constexpr):
    """What RMSNorm multiplies the row by, which each pair finds for itself: [PAIRS, 1, 1, 1]."""
    wide = x.to(tl.float32)
    square = tl.sum(tl.sum(tl.sum(wide * wide, 2), 2), 1)
    return tl.rsqrt(square / K + eps)[:, None, None, None]


@triton.jit
def products(w, x):
    """[PAIRS, 2, lanes] float32: the sums of each lane."""
    return tl.sum(w.to(tl.float32) * x.to(tl.float32), 2)


@triton.jit
def row_ahead(norm, weight, rows, K: tl.constexpr, COLUMNS: tl.constexpr, DEPTH: tl.constexpr):
    """The first weights of the rows ``rows``, and of the norm."""
    w_rows = weight + tl.reshape(rows, (COLUMNS // 2, 2, 1, 1)).to(tl.int64) * K
    return strand(w_rows, 0, K, DEPTH, COLUMNS // 2, 2), strand(norm, 0, K, DEPTH, COLUMNS // 2, 1)


@triton.jit
def one_row(
    x, norm, eps, weight, rows, w, g, K: tl.constexpr, COLUMNS: tl.constexpr, DEPTH: tl.constexpr, NORM: tl.constexpr
):
    """[COLUMNS] float32: the row ``x``, normed if NORM, times the rows ``rows`` of ``weight``, DEPTH numbers at a time.

    ``w`` and ``g`` are from `row_ahead`; after them, too, weights are on their way while those before are multiplied.
    """
    PAIRS: tl.constexpr = COLUMNS // 2
    now = strand(x, 0, K, DEPTH, PAIRS, 1)
    if NORM:
        if DEPTH >= K:
            scale = row_scale(now, eps, K)
        else:
            scale = row_scale(strand(x, 0, K, triton.next_power_of_2(K), PAIRS, 1), eps, K)
        now = normed(now, scale, g)
    sums = tl.zeros((PAIRS, 2, min(DEPTH, LANES)), tl.float32)
    if DEPTH < K:
        w_rows = weight + tl.reshape(rows, (PAIRS, 2, 1, 1)).to(tl.int64) * K
        for start in tl.range(DEPTH, K, DEPTH):
            w_next, x_next = strand(w_rows, start, K, DEPTH, PAIRS, 2), strand(x, start, K, DEPTH, PAIRS, 1)
            if NORM:
                x_next = normed(x_next, scale, strand(norm, start, K, DEPTH, PAIRS, 1))
            sums += products(w, now)
            w, now = w_next, x_next
    return tl.reshape(tl.sum(sums + products(w, now), 2), (COLUMNS,))
