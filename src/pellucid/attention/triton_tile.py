"""Tiles of keys: what decoding and prefill both do with them."""

import triton
import triton.language as tl


@triton.jit
def block_ids(table, first, limit, KEYS: tl.constexpr, BLOCK_SIZE: tl.constexpr):
    """The block of each of the positions ``first .. first + KEYS - 1``, 0 from ``limit`` on: int64 [KEYS].

    ``table`` is the request's row of the block table. A tile may lie in many blocks, or in a part of one.
    """
    positions = first + tl.arange(0, KEYS)
    blocks = tl.load(table + positions // BLOCK_SIZE, mask=positions < limit, other=0)
    return blocks.to(tl.int64)  # pools hold more than 2 ** 31 numbers


@triton.jit
def attend_keys(q, k, v, acc, peak, total, scale, seen, MASKED: tl.constexpr, UPCAST: tl.constexpr):
    """Let the queries ``q`` [rows, PADDED_DIM] see the keys ``k`` and values ``v`` [keys, PADDED_DIM].

    The online softmax of Milakov and Gimelshein (2018), as in FlashAttention (Dao et al., 2022), to base 2:
    ``scale`` is that of the scores times log2(e). ``acc`` [rows, PADDED_DIM] is the sum of the values, ``total``
    [rows] that of the weights, both as shares of 2 ** ``peak``, the largest score yet.

    If MASKED, a row sees what ``seen`` [rows or 1, keys] says. The first keys of a row must hold one that it sees.
    """
    if UPCAST:
        k = k.to(tl.float32)
        v = v.to(tl.float32)
    scores = tl.dot(q, tl.trans(k), input_precision="tf32x3") * scale
    if MASKED:
        scores = tl.where(seen, scores, float("-inf"))
    higher = tl.maximum(peak, tl.max(scores, 1))
    weights = tl.exp2(scores - higher[:, None])
    fade = tl.exp2(peak - higher)
    acc = tl.dot(weights.to(v.dtype), v, acc * fade[:, None], input_precision="tf32x3")
    return acc, higher, total * fade + tl.sum(weights, 1)


@triton.jit
def attend_tile(
    q,
    acc,
    peak,
    total,
    k_pool,
    v_pool,
    blocks,
    head,
    first,
    limit,
    last,
    scale,
    MASKED: tl.constexpr,
    KEYS: tl.constexpr,
    BLOCK_SIZE: tl.constexpr,
    KV_HEADS: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    PADDED_DIM: tl.constexpr,
    UPCAST: tl.constexpr,
):
    """`attend_keys` with the keys ``first .. first + KEYS - 1``, which lie in ``blocks``.

    If MASKED, nothing from the position ``limit`` on is loaded, so it does not matter what lies there, and row
    i sees the positions up to ``last[i]`` only.
    """
    positions = first + tl.arange(0, KEYS)
    dims = tl.arange(0, PADDED_DIM)
    slots = blocks * BLOCK_SIZE + positions % BLOCK_SIZE
    offsets = (slots * (KV_HEADS * HEAD_DIM))[:, None] + (head * HEAD_DIM + dims)[None, :]
    if HEAD_DIM == PADDED_DIM and not MASKED:
        k = tl.load(k_pool + offsets)
        v = tl.load(v_pool + offsets)
    else:
        real = (dims < HEAD_DIM)[None, :]
        if MASKED:
            real &= (positions < limit)[:, None]
        k = tl.load(k_pool + offsets, mask=real, other=0.0)
        v = tl.load(v_pool + offsets, mask=real, other=0.0)
    seen = positions[None, :] <= last[:, None]
    return attend_keys(q, k, v, acc, peak, total, scale, seen, MASKED, UPCAST)


@triton.jit
def attend_tiles(
    q,
    acc,
    peak,
    total,
    k_pool,
    v_pool,
    table,
    blocks,
    head,
    begin,
    end,
    limit,
    last,
    scale,
    MASKED: tl.constexpr,
    KEYS: tl.constexpr,
    BLOCK_SIZE: tl.constexpr,
    KV_HEADS: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    PADDED_DIM: tl.constexpr,
    UPCAST: tl.constexpr,
):
    """`attend_tile` for the tiles that start from ``begin`` on and before ``end``, block ids loaded a tile ahead.

    ``blocks`` are those of the first tile; those of the tile after the last come back with what `attend_tile` returns.
    """
    for first in range(begin, end, KEYS):
        following = block_ids(table, first + KEYS, limit, KEYS, BLOCK_SIZE)
        acc, peak, total = attend_tile(
            q, acc, peak, total, k_pool, v_pool, blocks, head, first, limit, last, scale,
            MASKED, KEYS, BLOCK_SIZE, KV_HEADS, HEAD_DIM, PADDED_DIM, UPCAST,
        )  # fmt: skip
        blocks = following
    return acc, peak, total, blocks
