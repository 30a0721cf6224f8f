"""Attention of requests that compute one token: a context is split among programs, and the last puts it together."""

import triton
import triton.language as tl

from pellucid.attention.triton_tile import attend_tiles, block_ids
from pellucid.triton_launch import announce, await_input


@triton.jit
def store_heads(
    out,
    values,
    first,
    head_stride,
    ROWS: tl.constexpr,
    GROUP: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    PADDED_DIM: tl.constexpr,
):
    """Store what is real of ``values`` [ROWS, PADDED_DIM]: GROUP heads of one token, from the head ``first`` on."""
    members, dims = tl.arange(0, ROWS), tl.arange(0, PADDED_DIM)
    real = (members < GROUP)[:, None] & (dims < HEAD_DIM)[None, :]
    place = ((first + members) * head_stride)[:, None] + dims[None, :]
    tl.store(out + place, values.to(out.dtype.element_ty), mask=real)


@triton.jit
def combine(
    sums,
    weights,
    first,
    used,
    GROUP: tl.constexpr,
    PADDED_GROUP: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    PADDED_DIM: tl.constexpr,
    AT_ONCE: tl.constexpr,
):
    """The mean of the ``used`` results from ``first`` on, by their weights: float32 [PADDED_GROUP, PADDED_DIM].

    ``sums`` is [results, GROUP, HEAD_DIM]; ``weights`` [results, GROUP] is the log2 of what each counts.
    """
    members = tl.minimum(tl.arange(0, PADDED_GROUP), GROUP - 1)
    dims = tl.arange(0, PADDED_DIM)
    acc = tl.zeros([PADDED_GROUP, PADDED_DIM], tl.float32)
    peak = tl.full([PADDED_GROUP], float("-inf"), tl.float32)
    total = tl.zeros([PADDED_GROUP], tl.float32)
    for start in range(0, used, AT_ONCE):
        splits = start + tl.arange(0, AT_ONCE)
        mine = (first + splits)[:, None] * GROUP + members[None, :]
        there = splits < used
        weight = tl.load(weights + mine, mask=there[:, None], other=float("-inf"), cache_modifier=".cg")
        real = there[:, None, None] & (dims < HEAD_DIM)[None, None, :]
        place = mine[:, :, None] * HEAD_DIM + dims[None, None, :]
        part = tl.load(sums + place, mask=real, other=0.0, cache_modifier=".cg")
        higher = tl.maximum(peak, tl.max(weight, 0))
        share = tl.exp2(weight - higher[None, :])
        fade = tl.exp2(peak - higher)
        acc = acc * fade[:, None] + tl.sum(part * share[:, :, None], 0)
        total = total * fade + tl.sum(share, 0)
        peak = higher
    return acc / total[:, None]


@triton.jit(
    do_not_specialize=["mixed", "table_stride"],
    do_not_specialize_on_alignment=["query_start", "context_lens", "tables"],
)
def decode_kernel(
    out,
    q,
    k_pool,
    v_pool,
    tables,
    context_lens,
    query_start,
    sums,
    weights,
    arrived,
    mixed,
    table_stride,
    q_token_stride,
    q_head_stride,
    out_token_stride,
    out_head_stride,
    scale,
    GROUP: tl.constexpr,
    PADDED_GROUP: tl.constexpr,
    KV_HEADS: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    PADDED_DIM: tl.constexpr,
    BLOCK_SIZE: tl.constexpr,
    ROWS: tl.constexpr,
    KEYS: tl.constexpr,
    LEAST: tl.constexpr,
    AT_ONCE: tl.constexpr,
    UPCAST: tl.constexpr,
    PDL: tl.constexpr,
):
    """Grid (KV heads, splits, requests). The query heads of a KV head are the rows of one matrix product.

    Each split takes the same whole number of LEAST keys, so a short context has fewer splits than there are
    programs, and the others end at once. A context of one split is finished by it; of more, each leaves its sums
    in ``sums`` and ``weights`` (as `combine` reads them) and counts itself in ``arrived`` [requests, KV_HEADS]; who
    finds all others there puts them together and sets the count back to 0.

    If ``mixed``, requests that compute another number of tokens than one are left alone; otherwise the token of
    request r is token r. A request without context gets zeros.
    """
    head, split, row = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    splits = tl.num_programs(1)
    await_input(PDL)
    announce(PDL)
    token = row
    count = 1
    if mixed:
        token = tl.load(query_start + row)
        count = tl.load(query_start + row + 1) - token
    context = tl.load(context_lens + row)
    span = tl.maximum(tl.cdiv(tl.cdiv(context, splits), LEAST), 1) * LEAST
    used = tl.cdiv(context, span)
    if (count != 1) | (split >= tl.maximum(used, 1)):
        return

    members, dims = tl.arange(0, ROWS), tl.arange(0, PADDED_DIM)
    real = (members < GROUP)[:, None] & (dims < HEAD_DIM)[None, :]
    heads = (head * GROUP + members)[:, None]
    q += token.to(tl.int64) * q_token_stride
    queries = tl.load(q + heads * q_head_stride + dims[None, :], mask=real, other=0.0)
    if UPCAST:
        queries = queries.to(tl.float32)
    table = tables + row.to(tl.int64) * table_stride
    limit = tl.minimum(context, (split + 1) * span)
    last = tl.zeros([ROWS], tl.int32) + (limit - 1)
    acc = tl.zeros([ROWS, PADDED_DIM], tl.float32)
    peak = tl.full([ROWS], float("-inf"), tl.float32)
    total = tl.zeros([ROWS], tl.float32)
    blocks = block_ids(table, split * span, limit, KEYS, BLOCK_SIZE)
    acc, peak, total, blocks = attend_tiles(
        queries, acc, peak, total, k_pool, v_pool, table, blocks, head, split * span, limit, limit, last, scale,
        True, KEYS, BLOCK_SIZE, KV_HEADS, HEAD_DIM, PADDED_DIM, UPCAST,
    )  # fmt: skip
    acc /= tl.where(total > 0, total, 1)[:, None]

    out += token.to(tl.int64) * out_token_stride
    if used <= 1:
        store_heads(out, acc, head * GROUP, out_head_stride, ROWS, GROUP, HEAD_DIM, PADDED_DIM)
    else:
        place = row * KV_HEADS + head
        mine = (place * splits + split) * GROUP
        store_heads(sums, acc, mine, HEAD_DIM, ROWS, GROUP, HEAD_DIM, PADDED_DIM)
        tl.store(weights + mine + members, peak + tl.log2(total), mask=members < GROUP)
        tl.debug_barrier()  # every thread has stored before one of them counts for all
        if tl.atomic_add(arrived + place, 1, sem="acq_rel", scope="gpu") == used - 1:
            tl.store(arrived + place, 0)
            mean = combine(sums, weights, place * splits, used, GROUP, PADDED_GROUP, HEAD_DIM, PADDED_DIM, AT_ONCE)
            store_heads(out, mean, head * GROUP, out_head_stride, PADDED_GROUP, GROUP, HEAD_DIM, PADDED_DIM)
