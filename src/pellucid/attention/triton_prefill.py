"""Attention of requests that compute several tokens: tiles of queries, each over the context before it."""

import triton
import triton.language as tl

from pellucid.attention.triton_tile import attend_keys


@triton.jit
def block_ids(table, first, limit, KEYS: tl.constexpr, BLOCK_SIZE: tl.constexpr):
    """The block of each of the positions ``first .. first + KEYS - 1``, 0 from ``limit`` on: int64 [KEYS].

    ``table`` is the request's row of the block table. A tile may lie in many blocks, or in a part of one.
    """
    positions = first + tl.arange(0, KEYS)
    blocks = tl.load(table + positions // BLOCK_SIZE, mask=positions < limit, other=0)
    return blocks.to(tl.int64)  # pools hold more than 2 ** 31 numbers


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
    """`attend_keys` for the tiles that start from ``begin`` on and before ``end``, block ids loaded a tile ahead.

    ``blocks`` are those of the first tile; those of the tile after the last come back with what `attend_keys` returns.

    If MASKED, nothing from the position ``limit`` on is loaded, so it does not matter what lies there, and row
    i sees the positions up to ``last[i]`` only.
    """
    dims = tl.arange(0, PADDED_DIM)
    for first in range(begin, end, KEYS):
        following = block_ids(table, first + KEYS, limit, KEYS, BLOCK_SIZE)
        positions = first + tl.arange(0, KEYS)
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
        acc, peak, total = attend_keys(q, k, v, acc, peak, total, scale, seen, MASKED, UPCAST)
        blocks = following
    return acc, peak, total, blocks


@triton.jit
def find_request(query_start, tile, requests, TOKENS: tl.constexpr, AT_ONCE: tl.constexpr):
    """The request that ``tile`` belongs to; ``requests`` if it lies after all of them.

    The tiles of request r are numbered from ``query_start[r] // TOKENS + r`` on: never fewer than it needs.
    """
    found = -1
    for start in range(0, requests + 1, AT_ONCE):
        row = start + tl.arange(0, AT_ONCE)
        begins = tl.load(query_start + row, mask=row <= requests, other=0) // TOKENS + row
        found += tl.sum(((row <= requests) & (begins <= tile)).to(tl.int32), 0)
    return found


@triton.jit(
    do_not_specialize=["tokens", "requests", "table_stride"],
    do_not_specialize_on_alignment=["query_start", "context_lens", "tables"],
)
def prefill_kernel(
    out,
    q,
    k_pool,
    v_pool,
    tables,
    context_lens,
    query_start,
    tokens,
    requests,
    table_stride,
    q_token_stride,
    q_head_stride,
    out_token_stride,
    out_head_stride,
    scale,
    GROUP: tl.constexpr,
    KV_HEADS: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    PADDED_DIM: tl.constexpr,
    BLOCK_SIZE: tl.constexpr,
    ROWS: tl.constexpr,
    KEYS: tl.constexpr,
    UPCAST: tl.constexpr,
):
    """Grid (KV_HEADS × tiles,). A tile is ROWS // GROUP tokens of one request with all query heads of one KV head.

    There are ``tokens // (ROWS // GROUP) + requests + 1`` tiles, as if the padding after the last request were one
    more, without context: it gets zeros. Tiles that nobody needs end at once, and so do requests of one token,
    which are `decode_kernel`'s.
    """
    TOKENS: tl.constexpr = ROWS // GROUP
    pid = tl.program_id(0)
    head = pid % KV_HEADS
    # The last tiles of a long prompt see the most and begin first.
    tile = tl.num_programs(0) // KV_HEADS - 1 - pid // KV_HEADS
    row = find_request(query_start, tile, requests, TOKENS, 256)
    begin = tl.load(query_start + row)
    end = tl.load(query_start + row + 1, mask=row < requests, other=tokens)
    context = tl.load(context_lens + row, mask=row < requests, other=0)
    done = (tile - begin // TOKENS - row) * TOKENS
    count = end - begin
    if (done >= count) | ((count == 1) & (row < requests)):
        return

    rows, dims = tl.arange(0, ROWS), tl.arange(0, PADDED_DIM)
    query = done + rows // GROUP
    real = ((rows < TOKENS * GROUP) & (query < count))[:, None] & (dims < HEAD_DIM)[None, :]
    token = (begin + query).to(tl.int64)
    heads = head * GROUP + rows % GROUP
    place = (token * q_token_stride + heads * q_head_stride)[:, None] + dims[None, :]
    queries = tl.load(q + place, mask=real, other=0.0)
    if UPCAST:
        queries = queries.to(tl.float32)
    table = tables + row.to(tl.int64) * table_stride
    before = context - count + done
    limit = tl.minimum(context, before + TOKENS)
    last = tl.minimum(before + rows // GROUP, limit - 1)
    seen_by_all = tl.maximum(before + 1, 0) // KEYS * KEYS
    acc = tl.zeros([ROWS, PADDED_DIM], tl.float32)
    peak = tl.full([ROWS], float("-inf"), tl.float32)
    total = tl.zeros([ROWS], tl.float32)
    blocks = block_ids(table, 0, limit, KEYS, BLOCK_SIZE)
    acc, peak, total, blocks = attend_tiles(
        queries, acc, peak, total, k_pool, v_pool, table, blocks, head, 0, seen_by_all, limit, last, scale,
        False, KEYS, BLOCK_SIZE, KV_HEADS, HEAD_DIM, PADDED_DIM, UPCAST,
    )  # fmt: skip
    acc, peak, total, blocks = attend_tiles(
        queries, acc, peak, total, k_pool, v_pool, table, blocks, head, seen_by_all, limit, limit, last, scale,
        True, KEYS, BLOCK_SIZE, KV_HEADS, HEAD_DIM, PADDED_DIM, UPCAST,
    )  # fmt: skip
    acc /= tl.where(total > 0, total, 1)[:, None]
    place = (token * out_token_stride + heads * out_head_stride)[:, None] + dims[None, :]
    tl.store(out + place, acc.to(out.dtype.element_ty), mask=real)
