"""Products of few rows with a weight matrix: each program streams some rows of the matrix past all rows of the input.

The input may be normed on the way, by RMSNorm without weights (every program does it for itself: the input is small and
in the cache), and what happens to the product happens before it is stored: no launch and no trip to memory in between.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl

from pellucid.ops.triton_matvec import one_row, row_ahead
from pellucid.ops.triton_norm import rms_norm
from pellucid.ops.triton_tiles import Tile, fitted, rows_of, tile_for
from pellucid.triton_bulk import copyable, tiles_of
from pellucid.triton_launch import LINE_BYTES, announce, await_input, chained, fetch, upcast
from pellucid.triton_memory import shared_memory

LINE = tl.constexpr(LINE_BYTES.value // 2)
"""Numbers in a line of the cache, of two bytes each."""
LINES = tl.constexpr(16)
"""Lines of a row of weights that are fetched to the cache while the input is waited for, at most."""


@triton.jit
def strip(base, k, K: tl.constexpr, END: tl.constexpr):
    """Columns ``k`` of the rows that begin at ``base`` [n, 1]; those from K on, if the last of them (END) is, are 0."""
    return tl.load(base + k[None, :]) if END <= K else tl.load(base + k[None, :], mask=(k < K)[None, :], other=0.0)


@triton.jit
def squares(x):
    wide = x.to(tl.float32)
    return tl.sum(wide * wide, 1)


@triton.jit
def scaled(sums, square, eps, K: tl.constexpr, NORM: tl.constexpr):
    """Products [rows, columns] of rows whose squares add up to ``square``, as if RMSNorm had scaled the rows first.

    So a program reads its input once, and the products need not wait for the sum.
    """
    return sums * tl.rsqrt(square / K + eps)[:, None] if NORM else sums


@triton.jit
def accumulate(
    sums, x, w, ROWS: tl.constexpr, COLUMNS: tl.constexpr, DEPTH: tl.constexpr, SPLIT: tl.constexpr,
    UPCAST: tl.constexpr,
):  # fmt: skip
    """Add the products of ``x`` [ROWS, DEPTH] and ``w`` [COLUMNS, DEPTH]; ``sums`` is shaped as `nothing`."""
    if UPCAST:
        x, w = x.to(tl.float32), w.to(tl.float32)
    if SPLIT == 1:
        sums = tl.dot(x, tl.trans(w), sums, input_precision="ieee")
    else:
        x = tl.permute(tl.reshape(x, (ROWS, SPLIT, DEPTH // SPLIT)), (1, 0, 2))
        w = tl.permute(tl.reshape(w, (COLUMNS, SPLIT, DEPTH // SPLIT)), (1, 2, 0))
        sums = tl.dot(x, w, sums, input_precision="ieee")
    return sums


@triton.jit
def nothing(ROWS: tl.constexpr, COLUMNS: tl.constexpr, SPLIT: tl.constexpr):
    """Sums before anything is added, for each group of warps its own."""
    return tl.zeros((ROWS, COLUMNS), tl.float32) if SPLIT == 1 else tl.zeros((SPLIT, ROWS, COLUMNS), tl.float32)


@triton.jit
def total(sums, SPLIT: tl.constexpr):
    """[ROWS, COLUMNS] float32."""
    return sums if SPLIT == 1 else tl.sum(sums, 0)


@triton.jit
def ahead(
    weight, rows, STRIDE: tl.constexpr, K: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
    FIRST: tl.constexpr, LAST: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """What `multiplied` can load before its input is there: the first and the last weights.

    Of weights that are taken in steps, the first come to the cache only: steps are loaded with their input.
    """
    if ROWS == 1:
        w = row_ahead(weight, rows, K, COLUMNS, FIRST)
        w_last = w
    elif FIRST + LAST < K:
        line = tl.minimum(tl.arange(0, LINES) * LINE, K - 1)
        fetch(weight + rows[:, None].to(tl.int64) * STRIDE + line[None, :], PDL)
        w, w_last = rows, rows
    else:
        w_rows = weight + rows[:, None].to(tl.int64) * STRIDE
        w = strip(w_rows, tl.arange(0, FIRST), K, FIRST)
        w_last = w
        if LAST:
            w_last = strip(w_rows, FIRST + tl.arange(0, LAST), K, FIRST + LAST)
    return w, w_last


@triton.jit
def at_once(
    x_rows, eps, w, w_last, K: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr, FIRST: tl.constexpr,
    LAST: tl.constexpr, SPLIT: tl.constexpr, NORM: tl.constexpr, UPCAST: tl.constexpr,
):  # fmt: skip
    """`multiplied`, with all weights there."""
    x = strip(x_rows, tl.arange(0, FIRST), K, FIRST)
    x_last = x
    if LAST:
        x_last = strip(x_rows, FIRST + tl.arange(0, LAST), K, FIRST + LAST)
    square = tl.zeros((ROWS,), tl.float32)
    if NORM:
        square = squares(x)
        if LAST:
            square += squares(x_last)
    sums = accumulate(nothing(ROWS, COLUMNS, SPLIT), x, w, ROWS, COLUMNS, FIRST, SPLIT, UPCAST)
    if LAST:
        sums = accumulate(sums, x_last, w_last, ROWS, COLUMNS, LAST, SPLIT, UPCAST)
    return scaled(total(sums, SPLIT), square, eps, K, NORM)


@triton.jit
def in_steps(
    x_rows, eps, w_rows, K: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr, DEPTH: tl.constexpr,
    SPLIT: tl.constexpr, STAGES: tl.constexpr, NORM: tl.constexpr, UPCAST: tl.constexpr,
):  # fmt: skip
    """`multiplied`, a tile after the other, up to STAGES of them under way."""
    END: tl.constexpr = (K + DEPTH - 1) // DEPTH * DEPTH
    k = tl.arange(0, DEPTH)
    square = tl.zeros((ROWS,), tl.float32)
    sums = nothing(ROWS, COLUMNS, SPLIT)
    for start in tl.range(0, K, DEPTH, num_stages=STAGES):
        w = strip(w_rows, start + k, K, END)
        x = strip(x_rows, start + k, K, END)
        if NORM:
            square += squares(x)
        sums = accumulate(sums, x, w, ROWS, COLUMNS, DEPTH, SPLIT, UPCAST)
    return scaled(total(sums, SPLIT), square, eps, K, NORM)


@triton.jit
def in_bulk(
    x, token, eps, weight, row, begin, K: tl.constexpr, SHARE: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
    DEPTH: tl.constexpr, STAGES: tl.constexpr, NORM: tl.constexpr, UPCAST: tl.constexpr,
):  # fmt: skip
    """[ROWS, COLUMNS] float32: the products of `in_steps`, of rows from ``token`` on of ``x`` and from ``row`` on of
    ``weight``, both tensor descriptors, and of the SHARE numbers from ``begin`` on.

    A tile is copied by one instruction of one thread (CUDA programming guide, "Tensor Memory Access"). Behind the end
    of a row all is 0. Rows behind the last may be anything, and so are their sums: who stores leaves them out.
    """
    square = tl.zeros((ROWS,), tl.float32)
    sums = nothing(ROWS, COLUMNS, 1)
    for start in tl.range(begin, begin + SHARE, DEPTH, num_stages=STAGES):
        x_tile = x.load([token, start])
        if NORM:
            square += squares(x_tile)
        sums = accumulate(sums, x_tile, weight.load([row, start]), ROWS, COLUMNS, DEPTH, 1, UPCAST)
    return scaled(sums, square, eps, K, NORM)


@triton.jit
def multiplied(
    x, x_stride, tokens, token, eps, weight, rows, w, w_last, STRIDE: tl.constexpr, K: tl.constexpr,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr, FIRST: tl.constexpr, LAST: tl.constexpr, SPLIT: tl.constexpr,
    STAGES: tl.constexpr, NORM: tl.constexpr, UPCAST: tl.constexpr,
):  # fmt: skip
    """[ROWS, COLUMNS] float32: rows ``token`` of ``x``, normed if NORM, times rows ``rows`` [COLUMNS] of ``weight``.

    Of both, K numbers a row; there are STRIDE in a row of weights. Rows of x from ``tokens`` on are the last one again.
    ``w`` and ``w_last`` are from `ahead`.
    """
    if ROWS == 1:
        out = one_row(x, eps, weight, rows, w, K, COLUMNS, FIRST, NORM)[None, :]
    else:
        x_rows = x + tl.minimum(token, tokens - 1)[:, None] * x_stride
        if FIRST + LAST >= K:
            out = at_once(x_rows, eps, w, w_last, K, ROWS, COLUMNS, FIRST, LAST, SPLIT, NORM, UPCAST)
        else:
            w_rows = weight + rows[:, None].to(tl.int64) * STRIDE
            out = in_steps(x_rows, eps, w_rows, K, ROWS, COLUMNS, FIRST, SPLIT, STAGES, NORM, UPCAST)
    return out


@triton.jit
def gathered(
    sums, shared, arrived, tokens, token, N: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
    SHARES: tl.constexpr,
):  # fmt: skip
    """The sums of all SHARES programs of these columns and rows ``token``, in the order of their shares, and True: for
    the last to come.

    The others leave theirs in ``shared`` [SHARES, tokens, N] and get False. ``arrived`` [programs of a share] counts,
    and is 0 again afterwards.
    """
    column = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
    arrived += tl.program_id(2) * tl.num_programs(0) + tl.program_id(0)
    mask = (token < tokens)[:, None] & (column < N)[None, :]
    there = token[:, None] * N + column[None, :]
    tl.store(shared + tl.program_id(1) * tokens * N + there, sums, mask=mask)
    tl.debug_barrier()  # every thread has stored before one of them counts for all
    is_last = tl.atomic_add(arrived, 1, sem="acq_rel", scope="gpu") == SHARES - 1
    if is_last:
        tl.store(arrived, 0)
        sums = tl.zeros((ROWS, COLUMNS), tl.float32)
        for share in tl.static_range(SHARES):
            sums += tl.load(shared + share * tokens * N + there, mask=mask, other=0.0, cache_modifier=".cg")
    return sums, is_last


@triton.jit(do_not_specialize=["tokens"], do_not_specialize_on_alignment=["arrived"])
def product_kernel(
    x, x_stride, eps, weight, bias, out, out_stride, shared, arrived, tokens, N: tl.constexpr, K: tl.constexpr,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr, FIRST: tl.constexpr, LAST: tl.constexpr, SPLIT: tl.constexpr,
    STAGES: tl.constexpr, SHARES: tl.constexpr, NORM: tl.constexpr, BIAS: tl.constexpr, ADD: tl.constexpr,
    LATE: tl.constexpr, BULK: tl.constexpr, PDL: tl.constexpr, UPCAST: tl.constexpr,
):  # fmt: skip
    """The product, its bias added, stored in ``out`` or added to what is there.

    Grid (programs, SHARES, tiles of ROWS rows): each takes a share of the inputs of its columns. A row that is normed
    has one share.
    """
    announce(PDL and not LATE)
    SHARE: tl.constexpr = K // SHARES
    columns = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
    inside = tl.minimum(columns, N - 1)
    begin = tl.program_id(1) * SHARE
    if not BULK:
        x += begin
        weight += begin
        w, w_last = ahead(weight, inside, K, SHARE, ROWS, COLUMNS, FIRST, LAST, PDL)
    if BIAS:
        b = tl.load(bias + inside).to(tl.float32)[None, :]
    token = tl.program_id(2) * ROWS + tl.arange(0, ROWS)
    there = out + token[:, None] * out_stride + columns[None, :]
    mask = (token < tokens)[:, None] & (columns < N)[None, :]
    await_input(PDL)
    announce(PDL and LATE)
    if ADD:
        before = tl.load(there, mask=mask, other=0.0)
    if BULK:
        sums = in_bulk(
            x, tl.program_id(2) * ROWS, eps, weight, tl.program_id(0) * COLUMNS, begin, K, SHARE, ROWS, COLUMNS, FIRST,
            STAGES, NORM, UPCAST,
        )  # fmt: skip
    else:
        sums = multiplied(
            x, x_stride, tokens, token, eps, weight, inside, w, w_last, K, SHARE, ROWS, COLUMNS, FIRST, LAST, SPLIT,
            STAGES, NORM, UPCAST,
        )  # fmt: skip
    if SHARES > 1:
        sums, is_last = gathered(sums, shared, arrived, tokens, token, N, ROWS, COLUMNS, SHARES)
        if not is_last:
            return
    if BIAS:
        sums += b
    if ADD:
        sums += before.to(tl.float32)
    tl.store(there, sums.to(out.dtype.element_ty), mask=mask)


@triton.jit
def gated_in_bulk(
    x, token, eps, weight, row, N: tl.constexpr, K: tl.constexpr, ROWS: tl.constexpr, HALF: tl.constexpr,
    DEPTH: tl.constexpr, STAGES: tl.constexpr, NORM: tl.constexpr, UPCAST: tl.constexpr,
):  # fmt: skip
    """`in_bulk` twice, with one input: gates [ROWS, HALF] from the rows from ``row`` on, and ups from N rows later."""
    square = tl.zeros((ROWS,), tl.float32)
    gate, up = nothing(ROWS, HALF, 1), nothing(ROWS, HALF, 1)
    for start in tl.range(0, K, DEPTH, num_stages=STAGES):
        x_tile = x.load([token, start])
        gates, ups = weight.load([row, start]), weight.load([N + row, start])
        if NORM:
            square += squares(x_tile)
        gate = accumulate(gate, x_tile, gates, ROWS, HALF, DEPTH, 1, UPCAST)
        up = accumulate(up, x_tile, ups, ROWS, HALF, DEPTH, 1, UPCAST)
    return scaled(gate, square, eps, K, NORM), scaled(up, square, eps, K, NORM)


@triton.jit(do_not_specialize=["tokens"])
def gated_kernel(
    x, x_stride, eps, weight, out, out_stride, tokens, N: tl.constexpr, K: tl.constexpr, ROWS: tl.constexpr,
    COLUMNS: tl.constexpr, FIRST: tl.constexpr, LAST: tl.constexpr, SPLIT: tl.constexpr, STAGES: tl.constexpr,
    NORM: tl.constexpr, LATE: tl.constexpr, BULK: tl.constexpr, PDL: tl.constexpr, UPCAST: tl.constexpr,
):  # fmt: skip
    """silu(gate) · up: of 2 N rows of ``weight`` the first half are gates. Gate and up of one output are neighbours.

    Grid (programs, tiles of ROWS rows).
    """
    announce(PDL and not LATE)
    HALF: tl.constexpr = COLUMNS // 2
    first = tl.program_id(0) * HALF
    token = tl.program_id(1) * ROWS + tl.arange(0, ROWS)
    if not BULK:
        neighbours = tl.arange(0, COLUMNS)
        rows = tl.minimum(first + neighbours // 2, N - 1) + neighbours % 2 * N
        w, w_last = ahead(weight, rows, K, K, ROWS, COLUMNS, FIRST, LAST, PDL)
    await_input(PDL)
    announce(PDL and LATE)
    if BULK:
        gate, up = gated_in_bulk(
            x, tl.program_id(1) * ROWS, eps, weight, first, N, K, ROWS, HALF, FIRST, STAGES, NORM, UPCAST
        )
    else:
        sums = multiplied(
            x, x_stride, tokens, token, eps, weight, rows, w, w_last, K, K, ROWS, COLUMNS, FIRST, LAST, SPLIT, STAGES,
            NORM, UPCAST,
        )  # fmt: skip
        gate, up = tl.split(tl.reshape(sums, (ROWS, HALF, 2)))
    columns = first + tl.arange(0, HALF)
    mask = (token < tokens)[:, None] & (columns < N)[None, :]
    values = gate * tl.sigmoid(gate) * up
    tl.store(out + token[:, None] * out_stride + columns[None, :], values.to(out.dtype.element_ty), mask=mask)


def product(
    x: torch.Tensor,
    weight: torch.Tensor,
    out: torch.Tensor,
    *,
    eps: float | None = None,
    bias: torch.Tensor | None = None,
    add: bool = False,
    arrived: torch.Tensor | None = None,
    late: bool = False,
) -> None:
    """Write ``x`` [T, in] times ``weight`` [out, in] to ``out`` [T, out], or ``add`` it there.

    With ``eps``, x is normed first: RMSNorm without weights. Programs that share out the inputs count themselves in
    ``arrived`` [as many as there are, or more] int32, if it is there, which is 0 before and after. ``late``: the next
    kernel starts late, as it does after some tiles.
    """
    arguments, chosen, options = prepared(x, eps, weight)
    outputs, inputs = weight.shape
    grid = triton.cdiv(outputs, chosen.columns), chosen.shares, triton.cdiv(len(x), options["ROWS"])
    unused = out
    if chosen.shares == 1:
        shared = arrived = unused
    else:
        shared = torch.empty((chosen.shares, *out.shape), dtype=torch.float32, device=out.device)
        arrived = torch.zeros(grid[0] * grid[2], dtype=torch.int32, device=out.device) if arrived is None else arrived
    product_kernel[grid](
        *arguments, unused if bias is None else bias, out, out.stride(0), shared, arrived, len(x), outputs, inputs,
        SHARES=chosen.shares, BIAS=bias is not None, ADD=add, LATE=late or chosen.late, BULK=chosen.bulk, **options,
    )  # fmt: skip


def gated_product(x: torch.Tensor, weight: torch.Tensor, out: torch.Tensor, *, eps: float | None = None) -> None:
    """Write silu(gate · x) · (up · x) to ``out`` [T, inner]; ``weight`` [2 inner, in] is the gate, then up."""
    arguments, chosen, options = prepared(x, eps, weight, pieces=2)
    outputs, inputs = weight.shape
    grid = triton.cdiv(outputs, chosen.columns), triton.cdiv(len(x), options["ROWS"])
    gated_kernel[grid](
        *arguments, out, out.stride(0), len(x), outputs // 2, inputs, LATE=chosen.late, BULK=chosen.bulk, **options,
    )  # fmt: skip


def prepared(
    x: torch.Tensor, eps: float | None, weight: torch.Tensor, *, pieces: int = 1, bulk: bool = True
) -> tuple[tuple[Any, ...], Tile, dict[str, Any]]:
    """What a kernel here begins with, the tile it computes, and the launch options that say so.

    ``pieces``: from how many places the rows of ``weight`` come that a program takes. Without ``bulk``, or if ``x``
    cannot be, nothing is copied in bulk.
    """
    chosen = tile_for(weight, len(x))
    assert chosen is not None  # who asks for so many rows asks cuBLAS
    if not (bulk and copyable(x)):
        chosen = chosen._replace(bulk=False)
    rows = chosen.rows or rows_of(len(x))
    if eps is not None and chosen.shares > 1:  # a share of a row does not know its scale
        x, eps = rms_norm(x, None, eps), None
    chosen = fitted(chosen, rows, weight.shape[1], x.dtype, shared_memory(x.device))
    operands: tuple[Any, Any] = x, weight
    if chosen.bulk:
        operands = tiles_of(x, rows, chosen.first), tiles_of(weight, chosen.columns // pieces, chosen.first)
    return (
        (operands[0], x.stride(0), eps or 0.0, operands[1]),
        chosen,
        {
            "ROWS": rows,
            "COLUMNS": chosen.columns,
            "FIRST": chosen.first,
            "LAST": chosen.last,
            "SPLIT": chosen.split,
            "STAGES": chosen.stages,
            "NORM": eps is not None,
            "UPCAST": upcast(x.dtype),
            "num_warps": chosen.warps,
            **chained(x.device),
        },
    )
