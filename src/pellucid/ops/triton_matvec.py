"""One row times a weight matrix: each warp multiplies rows of the matrix two by two, and no warp waits for another.

A tile is [pairs, 2, steps, lanes]: the lanes of a warp stand side by side in a row of weights, the pairs are shared
out among the warps, and the steps of a row are all under way at once.
"""

from __future__ import annotations

import triton
import triton.language as tl

LANES = tl.constexpr(256)
"""Numbers that a warp reads side by side: 16 bytes of bfloat16 a lane."""


@triton.jit
def strand(base, start, K: tl.constexpr, DEPTH: tl.constexpr, PAIRS: tl.constexpr, EACH: tl.constexpr):
    """Numbers ``start`` to ``start + DEPTH`` of the rows at ``base`` ([PAIRS, 2, 1, 1], or one for all); 0 from K on.

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
def products(w, x):
    """[PAIRS, 2, lanes] float32 (1 instead of 2, of a row with itself): the sums of each lane."""
    return tl.sum(w.to(tl.float32) * x.to(tl.float32), 2)


@triton.jit
def row_ahead(weight, rows, K: tl.constexpr, COLUMNS: tl.constexpr, DEPTH: tl.constexpr):
    """The first weights of the rows ``rows``."""
    w_rows = weight + tl.reshape(rows, (COLUMNS // 2, 2, 1, 1)).to(tl.int64) * K
    return strand(w_rows, 0, K, DEPTH, COLUMNS // 2, 2)


@triton.jit
def one_row(x, eps, weight, rows, w, K: tl.constexpr, COLUMNS: tl.constexpr, DEPTH: tl.constexpr, NORM: tl.constexpr):
    """[COLUMNS] float32: the row ``x``, normed if NORM, times the rows ``rows`` of ``weight``, DEPTH numbers at a time.

    ``w`` is from `row_ahead`; after it, too, weights are on their way while those before are multiplied.
    """
    PAIRS: tl.constexpr = COLUMNS // 2
    now = strand(x, 0, K, DEPTH, PAIRS, 1).to(tl.float32)
    square = tl.zeros((PAIRS, 1, min(DEPTH, LANES)), tl.float32)
    if NORM:
        square += products(now, now)
    sums = tl.zeros((PAIRS, 2, min(DEPTH, LANES)), tl.float32)
    if DEPTH < K:
        w_rows = weight + tl.reshape(rows, (PAIRS, 2, 1, 1)).to(tl.int64) * K
        for start in tl.range(DEPTH, K, DEPTH):
            w_next, x_next = strand(w_rows, start, K, DEPTH, PAIRS, 2), strand(x, start, K, DEPTH, PAIRS, 1)
            x_next = x_next.to(tl.float32)
            if NORM:
                square += products(x_next, x_next)
            sums += products(w, now)
            w, now = w_next, x_next
    out = tl.sum(sums + products(w, now), 2)
    if NORM:  # last, so that the products need not wait for it
        out *= tl.rsqrt(tl.sum(square, 2) / K + eps)
    return tl.reshape(out, (COLUMNS,))
