"""Attention of requests that compute one token: a context is read in parts, and the last to end puts them together."""

import triton
import triton.language as tl

from pellucid.attention.triton_tile import attend_keys
from pellucid.attention.triton_turn import beside, finished, norm_weights, places, turned_heads, with_newest
from pellucid.triton_heads import factor
from pellucid.triton_launch import LINE_BYTES, announce, await_input, fetch


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
        results = start + tl.arange(0, AT_ONCE)
        mine = (first + results)[:, None] * GROUP + members[None, :]
        there = results < used
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


@triton.jit
def early(pointers, mask):
    """What is there, as the L2 cache has it: before the wait nothing says that a nearer one holds no older number."""
    return tl.load(pointers, mask=mask, other=0, cache_modifier=".cg")


@triton.jit
def held(table, first, limit, KEYS: tl.constexpr, BLOCK_SIZE: tl.constexpr, EARLY: tl.constexpr):
    """The blocks of the positions ``first .. first + KEYS - 1``, 0 from ``limit`` on: one for all, or one each [KEYS].

    ``table`` is the request's row of the block table. EARLY: before the wait.
    """
    positions = first
    if BLOCK_SIZE % KEYS != 0:
        positions += tl.arange(0, KEYS)
    if EARLY:
        blocks = early(table + positions // BLOCK_SIZE, positions < limit)
    else:
        blocks = tl.load(table + positions // BLOCK_SIZE, mask=positions < limit, other=0)
    return blocks


@triton.jit
def begins(blocks, first, KEYS: tl.constexpr, BLOCK_SIZE: tl.constexpr, SLOT: tl.constexpr):
    """Where the keys ``first .. first + KEYS - 1`` lie in a pool with SLOT numbers a slot, if `held` gave ``blocks``:
    the first of them, with the others behind it, or each [KEYS, 1]."""
    blocks = blocks.to(tl.int64)  # pools hold more than 2 ** 31 numbers
    if BLOCK_SIZE % KEYS == 0:
        slots = blocks * BLOCK_SIZE + first % BLOCK_SIZE
    else:
        slots = (blocks * BLOCK_SIZE + (first + tl.arange(0, KEYS)) % BLOCK_SIZE)[:, None]
    return slots * SLOT


@triton.jit
def behind(head, dims, KEYS: tl.constexpr, BLOCK_SIZE: tl.constexpr, KV_HEADS: tl.constexpr, HEAD_DIM: tl.constexpr):
    """How far numbers ``dims`` of ``head``, of each key of a tile, lie behind where `begins` says that they begin."""
    inner = head * HEAD_DIM + dims[None, :]
    if BLOCK_SIZE % KEYS == 0:
        inner += tl.arange(0, KEYS)[:, None] * (KV_HEADS * HEAD_DIM)
    return inner


@triton.jit
def fetch_tile(
    k_pool, v_pool, blocks, head, first, KEYS: tl.constexpr, BLOCK_SIZE: tl.constexpr, KV_HEADS: tl.constexpr,
    HEAD_DIM: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """Have the keys ``first .. first + KEYS - 1`` and their values brought into the cache; `held` gave ``blocks``."""
    LINE: tl.constexpr = LINE_BYTES * 8 // k_pool.dtype.element_ty.primitive_bitwidth
    LINES: tl.constexpr = triton.next_power_of_2((HEAD_DIM + LINE - 1) // LINE)
    lines = tl.minimum(tl.arange(0, LINES) * LINE, HEAD_DIM - 1)
    there = begins(blocks, first, KEYS, BLOCK_SIZE, KV_HEADS * HEAD_DIM)
    there += behind(head, lines, KEYS, BLOCK_SIZE, KV_HEADS, HEAD_DIM)
    fetch(k_pool + there, PDL)
    fetch(v_pool + there, PDL)


@triton.jit
def attend_part(
    q, k_pool, v_pool, table, blocks, head, first, limit, scale, acc, peak, total, KEYS: tl.constexpr,
    BLOCK_SIZE: tl.constexpr, KV_HEADS: tl.constexpr, HEAD_DIM: tl.constexpr, PADDED_DIM: tl.constexpr,
    UPCAST: tl.constexpr,
):  # fmt: skip
    """What `attend_keys` makes of the keys ``first .. limit - 1``, besides the sums, peak and total that are there.
    Those behind stay unread.

    ``first`` is a multiple of KEYS: a tile that began elsewhere would run over the end of its block. ``blocks`` are
    `held` from there on.
    """
    keys, dims = tl.arange(0, KEYS), tl.arange(0, PADDED_DIM)
    inner = behind(head, dims, KEYS, BLOCK_SIZE, KV_HEADS, HEAD_DIM)
    for start in range(first, limit, KEYS):
        here = begins(blocks, start, KEYS, BLOCK_SIZE, KV_HEADS * HEAD_DIM)
        blocks = held(table, start + KEYS, limit, KEYS, BLOCK_SIZE, EARLY=False)  # a tile ahead
        seen = keys < limit - start
        real = tl.broadcast_to(seen[:, None], (KEYS, PADDED_DIM))
        if HEAD_DIM != PADDED_DIM:
            real &= (dims < HEAD_DIM)[None, :]
        k = tl.load(k_pool + here + inner, mask=real, other=0.0)
        v = tl.load(v_pool + here + inner, mask=real, other=0.0)
        acc, peak, total = attend_keys(q, k, v, acc, peak, total, scale, seen[None, :], True, UPCAST)
    return acc, peak, total


@triton.jit
def leave(
    out, acc, peak, total, sums, weights, arrived, head, program, first, used, out_head_stride, GROUP: tl.constexpr,
    PADDED_GROUP: tl.constexpr, HEAD_DIM: tl.constexpr, PADDED_DIM: tl.constexpr, ROWS: tl.constexpr,
    AT_ONCE: tl.constexpr,
):  # fmt: skip
    """Finish the heads of a token at ``out``, or leave what this part made of them to whoever comes last."""
    acc /= tl.where(total > 0, total, 1)[:, None]
    if used == 1:
        store_heads(out, acc, head * GROUP, out_head_stride, ROWS, GROUP, HEAD_DIM, PADDED_DIM)
    else:
        members = tl.arange(0, ROWS)
        place = head * tl.num_programs(1)
        mine = (place + program) * GROUP
        store_heads(sums, acc, mine, HEAD_DIM, ROWS, GROUP, HEAD_DIM, PADDED_DIM)
        tl.store(weights + mine + members, peak + tl.log2(total), mask=members < GROUP)
        place += first
        tl.debug_barrier()  # every thread has stored before one of them counts for all
        if tl.atomic_add(arrived + place, 1, sem="acq_rel", scope="gpu") == used - 1:
            tl.store(arrived + place, 0)
            mean = combine(sums, weights, place, used, GROUP, PADDED_GROUP, HEAD_DIM, PADDED_DIM, AT_ONCE)
            store_heads(out, mean, head * GROUP, out_head_stride, PADDED_GROUP, GROUP, HEAD_DIM, PADDED_DIM)


@triton.jit
def turned_request(
    heads, x, x_eps, bias, of_q, of_k, eps, cos, sin, k_pool, v_pool, slot, blocks, head, begin, end, newest, scale,
    GROUP: tl.constexpr, PADDED_GROUP: tl.constexpr, KV_HEADS: tl.constexpr, HEAD_DIM: tl.constexpr,
    PADDED_DIM: tl.constexpr, BLOCK_SIZE: tl.constexpr, ROWS: tl.constexpr, KEYS: tl.constexpr, K: tl.constexpr,
    WIDTH: tl.constexpr, SCALED: tl.constexpr, BIAS: tl.constexpr, NORM: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """What `with_newest` gives, of the request whose heads begin at ``heads`` and whose row of `Unscaled` at ``x``; if
    ``newest``, its key and value are put in ``slot``.

    All is asked for before anything is computed: heads, then the row, then, if SCALED, the first tile of keys.
    """
    dims = tl.arange(0, PADDED_DIM)
    at_q, at_k, at_v, there, mine = places(head, dims, newest, GROUP, PADDED_GROUP, KV_HEADS, HEAD_DIM)
    queries, key = beside(heads + at_q, dims, there, HEAD_DIM), beside(heads + at_k, dims, mine, HEAD_DIM)
    value = tl.load(heads + at_v + dims[None, :], mask=mine, other=0.0)
    if SCALED:
        tl.debug_barrier()  # else the compiler asks for the row first, and waits for it
        wide = tl.arange(0, WIDTH)
        row = tl.load(x + wide, mask=wide < K, other=0.0)
        if begin < end:
            fetch_tile(k_pool, v_pool, blocks, head, begin, KEYS, BLOCK_SIZE, KV_HEADS, HEAD_DIM, PDL)
    unit = factor(row, x_eps, K) if SCALED else 1.0
    own = heads.dtype.element_ty
    queries = turned_heads(queries, bias + at_q, dims, there, unit, of_q, eps, cos, sin, HEAD_DIM, BIAS, NORM).to(own)
    key = turned_heads(key, bias + at_k, dims, mine, unit, of_k, eps, cos, sin, HEAD_DIM, BIAS, NORM).to(own)
    value = finished(value, bias + at_v, dims, mine, unit, BIAS).to(own)
    put = (slot * KV_HEADS + head) * HEAD_DIM + dims[None, :]
    tl.store(k_pool + put, key, mask=mine)
    tl.store(v_pool + put, value, mask=mine)
    return with_newest(queries, key, value, newest, scale, ROWS, PADDED_GROUP, PADDED_DIM)


@triton.jit(do_not_specialize=["table_stride"], do_not_specialize_on_alignment=["tables"])
def decode_kernel(
    out, q, k_pool, v_pool, tables, parts, sums, weights, arrived, table_stride, q_token_stride, q_head_stride,
    out_token_stride, out_head_stride, scale, x, x_stride, x_eps, bias, q_norm, k_norm, eps, cos, sin, slots,
    GROUP: tl.constexpr, PADDED_GROUP: tl.constexpr, KV_HEADS: tl.constexpr, HEAD_DIM: tl.constexpr,
    PADDED_DIM: tl.constexpr, BLOCK_SIZE: tl.constexpr, ROWS: tl.constexpr, KEYS: tl.constexpr, FIELDS: tl.constexpr,
    AT_ONCE: tl.constexpr, TURN: tl.constexpr, K: tl.constexpr, WIDTH: tl.constexpr, SCALED: tl.constexpr,
    BIAS: tl.constexpr, NORM: tl.constexpr, UPCAST: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """Grid (KV heads, programs). The query heads of a KV head are the rows of one matrix product.

    Each program takes the part of a context that ``parts`` (see `plan_kernel`) has for it. A context of one part is
    finished by it; of more, each leaves its sums in ``sums`` and ``weights`` (as `combine` reads them) and counts
    itself in ``arrived`` [KV heads, programs], at the place of the first part; who finds all others there puts them
    together and sets the count back to 0. A request without context gets zeros.

    If TURN, the heads at ``q`` are as the product of q, k and v left them (see `Unturned`, whose parts ``x`` to ``sin``
    are): every program turns the queries that it needs, and that of a context's last part takes the newest key and
    value from there too, and puts them in their slot. Nobody else may read that in this step.

    ``parts``, ``tables``, ``slots`` and angles are read, and the first tile of keys is fetched, before the kernel
    before this one has ended: whoever made them must have ended before that one let this one start.
    """
    head, program = tl.program_id(0), tl.program_id(1)
    announce(PDL)
    part = parts + program * FIELDS
    row, token, begin = early(part, True), early(part + 1, True), early(part + 2, True)
    end, first, used = early(part + 3, True), early(part + 4, True), early(part + 5, True)
    begin, end = tl.where(row < 0, 0, begin), tl.where(row < 0, 0, end)
    token = tl.where(row < 0, 0, token).to(tl.int64)
    table = tables + tl.maximum(row, 0).to(tl.int64) * table_stride
    blocks = held(table, begin, end, KEYS, BLOCK_SIZE, EARLY=True)
    if not (TURN and SCALED) and begin < end:  # there cuBLAS came before, and has ended
        fetch_tile(k_pool, v_pool, blocks, head, begin, KEYS, BLOCK_SIZE, KV_HEADS, HEAD_DIM, PDL)
    dims = tl.arange(0, PADDED_DIM)
    if TURN:
        some = (row >= 0) & (dims < HEAD_DIM)
        turns = token * (HEAD_DIM // 2) + dims % (HEAD_DIM // 2)
        c, s, slot = early(cos + turns, some), early(sin + turns, some), early(slots + token, row >= 0)
        of_q = norm_weights(q_norm, dims, some, c, NORM, HEAD_DIM)
        of_k = norm_weights(k_norm, dims, some, c, NORM, HEAD_DIM)
    await_input(PDL)
    if row < 0:
        return
    q += token * q_token_stride
    if TURN:
        newest = (begin < end) & (program == first + used - 1)
        queries, acc, peak, total = turned_request(
            q, x + token * x_stride, x_eps, bias, of_q, of_k, eps, c, s, k_pool, v_pool, slot, blocks, head, begin, end,
            newest, scale, GROUP, PADDED_GROUP, KV_HEADS, HEAD_DIM, PADDED_DIM, BLOCK_SIZE, ROWS, KEYS, K, WIDTH,
            SCALED, BIAS, NORM, PDL,
        )  # fmt: skip
        end -= newest.to(tl.int32)
    else:
        members = tl.arange(0, ROWS)
        heads = (head * GROUP + members)[:, None] * q_head_stride + dims[None, :]
        queries = tl.load(q + heads, mask=(members < GROUP)[:, None] & (dims < HEAD_DIM)[None, :], other=0.0)
        acc = tl.zeros([ROWS, PADDED_DIM], tl.float32)
        peak = tl.full([ROWS], float("-inf"), tl.float32)
        total = tl.zeros([ROWS], tl.float32)
    if UPCAST:
        queries = queries.to(tl.float32)
    acc, peak, total = attend_part(
        queries, k_pool, v_pool, table, blocks, head, begin, end, scale, acc, peak, total, KEYS, BLOCK_SIZE, KV_HEADS,
        HEAD_DIM, PADDED_DIM, UPCAST,
    )  # fmt: skip
    leave(
        out + token * out_token_stride, acc, peak, total, sums, weights, arrived, head, program, first, used,
        out_head_stride, GROUP, PADDED_GROUP, HEAD_DIM, PADDED_DIM, ROWS, AT_ONCE,
    )  # fmt: skip
