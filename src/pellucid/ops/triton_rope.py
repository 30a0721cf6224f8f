"""Queries and keys turned to their positions, keys and values put in their slots: after the product, or on its way.

Rotary position embedding (Su et al. 2021, arXiv:2104.09864), half-split: number i of a head turns with i + D/2.

These kernels wait before they let attention start, which comes next. If kernels that wait already were still on the
multiprocessors then, attention's programs would not spread evenly: on an H200, a step of eight requests could take half
as long again, with one size of tiles and not with another.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from pellucid.ops.base import Heads
from pellucid.ops.triton_matmul import ahead, multiplied, prepared
from pellucid.triton_heads import Unturned, factor_at, normed, turned
from pellucid.triton_launch import announce, await_input, chained

HEADS = 8
"""Heads of one token that a program turns."""


@triton.jit(do_not_specialize=["tokens"])
def rotated_product_kernel(
    x, x_stride, eps, weight, bias, cos, sin, q, k_pool, v_pool, slots, tokens,
    QUERIES: tl.constexpr, KEYS: tl.constexpr, DIM: tl.constexpr, K: tl.constexpr, ROWS: tl.constexpr,
    COLUMNS: tl.constexpr, FIRST: tl.constexpr, LAST: tl.constexpr, SPLIT: tl.constexpr, STAGES: tl.constexpr,
    NORM: tl.constexpr, BIAS: tl.constexpr, PDL: tl.constexpr, UPCAST: tl.constexpr,
):  # fmt: skip
    """q, k and v of ``x``: the two numbers of a pair are neighbours in a program, and turn before they are stored.

    Grid (programs, tiles of ROWS rows).
    """
    TURNS: tl.constexpr = DIM // 2
    PAIRS: tl.constexpr = (QUERIES + 2 * KEYS) * TURNS
    HALF: tl.constexpr = COLUMNS // 2
    neighbours = tl.arange(0, COLUMNS)
    place = tl.minimum(tl.program_id(0) * HALF + neighbours // 2, PAIRS - 1)
    rows = place // TURNS * DIM + place % TURNS + neighbours % 2 * TURNS
    w, w_last = ahead(weight, rows, K, K, ROWS, COLUMNS, FIRST, LAST, PDL)
    if BIAS:
        b = tl.load(bias + rows).to(tl.float32)[None, :]
    token, pair = tl.program_id(1) * ROWS + tl.arange(0, ROWS), tl.program_id(0) * HALF + tl.arange(0, HALF)
    head, i = pair // TURNS, pair % TURNS
    mask = (token < tokens)[:, None] & (pair < PAIRS)[None, :]
    turns = mask & (head < QUERIES + KEYS)[None, :]
    angle = token[:, None] * TURNS + i[None, :]
    await_input(PDL)
    announce(PDL)
    c, s = tl.load(cos + angle, mask=turns, other=1.0), tl.load(sin + angle, mask=turns, other=0.0)
    slot = tl.load(slots + token, mask=token < tokens, other=0)
    sums = multiplied(
        x, x_stride, tokens, token, eps, weight, rows, w, w_last, K, K, ROWS, COLUMNS, FIRST, LAST, SPLIT, STAGES, NORM,
        UPCAST,
    )  # fmt: skip
    if BIAS:
        sums += b
    first, second = tl.split(tl.reshape(sums, (ROWS, HALF, 2)))
    first, second = turned(first, second, c, s)
    put(
        first.to(q.dtype.element_ty), second.to(q.dtype.element_ty), token[:, None].to(tl.int64), slot[:, None],
        head[None, :], i[None, :], mask, q, QUERIES * DIM, k_pool, v_pool, QUERIES, KEYS, DIM,
    )  # fmt: skip


@triton.jit
def put(
    first, second, token, slot, head, i, mask, q, q_stride, k_pool, v_pool,
    QUERIES: tl.constexpr, KEYS: tl.constexpr, DIM: tl.constexpr,
):  # fmt: skip
    """Store number ``i`` of ``head`` and its partner: a query's in its row, a key's and a value's in the slot."""
    TURNS: tl.constexpr = DIM // 2
    there = q + token * q_stride + head * DIM + i
    mine = mask & (head < QUERIES)
    tl.store(there, first, mask=mine)
    tl.store(there + TURNS, second, mask=mine)
    if KEYS:
        key = head - QUERIES
        there = k_pool + slot * (KEYS * DIM) + key * DIM + i
        mine = mask & (key >= 0) & (key < KEYS)
        tl.store(there, first, mask=mine)
        tl.store(there + TURNS, second, mask=mine)
        value = key - KEYS
        there = v_pool + slot * (KEYS * DIM) + value * DIM + i
        mine = mask & (value >= 0)
        tl.store(there, first, mask=mine)
        tl.store(there + TURNS, second, mask=mine)


@triton.jit
def weights(q_norm, k_norm, query, i, mask):
    """The norm weights of number ``i`` of each head: float32."""
    of_q, of_k = tl.load(q_norm + i, mask=mask, other=0.0), tl.load(k_norm + i, mask=mask, other=0.0)
    return tl.where(query, of_q, of_k).to(tl.float32)


@triton.jit
def rotate_kernel(
    heads, stride, x, x_stride, x_eps, bias, q_norm, k_norm, eps, cos, sin, k_pool, v_pool, slots,
    QUERIES: tl.constexpr, KEYS: tl.constexpr, DIM: tl.constexpr, HEADS: tl.constexpr, WIDTH: tl.constexpr,
    K: tl.constexpr, ROW: tl.constexpr, SCALED: tl.constexpr, BIAS: tl.constexpr, NORM: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """HEADS heads of one token, from a product that is there: queries stay in place.

    If SCALED, all are first multiplied by the factor of the token's row of ``x``, and then have their ``bias`` added.
    """
    TURNS: tl.constexpr = DIM // 2
    token = tl.program_id(0).to(tl.int64)
    head = tl.program_id(1) * HEADS + tl.arange(0, HEADS)[:, None]
    i = tl.arange(0, WIDTH)[None, :]
    mask = (head < QUERIES + 2 * KEYS) & (i < TURNS)
    turns = mask & (head < QUERIES + KEYS)
    if NORM:
        g_first = weights(q_norm, k_norm, head < QUERIES, i, i < TURNS)
        g_second = weights(q_norm, k_norm, head < QUERIES, i + TURNS, i < TURNS)
    if BIAS:
        b_first = tl.load(bias + head * DIM + i, mask=mask, other=0.0)
        b_second = tl.load(bias + head * DIM + i + TURNS, mask=mask, other=0.0)
    await_input(PDL)
    announce(PDL)
    source = heads + token * stride + head * DIM + i
    first, second = tl.load(source, mask=mask, other=0.0), tl.load(source + TURNS, mask=mask, other=0.0)
    if SCALED:
        scale = factor_at(x + token * x_stride, x_eps, K, ROW)
        first, second = first.to(tl.float32) * scale, second.to(tl.float32) * scale
    if BIAS:
        first, second = first + b_first.to(tl.float32), second + b_second.to(tl.float32)
    if NORM:
        a, b = first.to(tl.float32), second.to(tl.float32)
        scale = tl.rsqrt(tl.sum(a * a + b * b, 1) / DIM + eps)[:, None]
        first = tl.where(turns, normed(first, scale, g_first), first)
        second = tl.where(turns, normed(second, scale, g_second), second)
    c = tl.load(cos + token * TURNS + i, mask=i < TURNS, other=1.0)
    s = tl.load(sin + token * TURNS + i, mask=i < TURNS, other=0.0)
    a, b = turned(first.to(tl.float32), second.to(tl.float32), c, s)
    first, second = tl.where(turns, a.to(first.dtype), first), tl.where(turns, b.to(first.dtype), second)
    slot = token
    if KEYS:
        slot = tl.load(slots + token)
    put(
        first.to(heads.dtype.element_ty), second.to(heads.dtype.element_ty), token, slot, head, i, mask, heads, stride,
        k_pool, v_pool, QUERIES, KEYS, DIM,
    )  # fmt: skip


def rotated_product(
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None,
    eps: float | None,
    heads: Heads,
    cos: torch.Tensor,
    sin: torch.Tensor,
    pools: tuple[torch.Tensor, torch.Tensor],
    slots: torch.Tensor,
) -> torch.Tensor:
    """q [T, H, D] of the few rows ``x``, normed without weights if there is an ``eps``; k and v go to ``slots`` ([T]
    int64) of the two ``pools`` of a layer."""
    arguments, chosen, options = prepared(x, eps, weight, bulk=False)
    outputs, inputs = weight.shape
    q = torch.empty((len(x), heads.queries, heads.dim), dtype=x.dtype, device=x.device)
    rotated_product_kernel[triton.cdiv(outputs, chosen.columns), triton.cdiv(len(x), options["ROWS"])](
        *arguments, weight if bias is None else bias, cos, sin, q, *pools, slots, len(x), *heads, inputs,
        BIAS=bias is not None, **options,
    )  # fmt: skip
    return q


def rotate(
    unturned: Unturned,
    heads: Heads,
    pools: tuple[torch.Tensor, torch.Tensor] | None = None,
    slots: torch.Tensor | None = None,
) -> None:
    """Turn the heads of ``unturned`` [T, (H + 2 Hkv) · D] with all that comes before.

    Queries are turned in place; keys, and values as they are, go to ``slots`` ([T] int64) of the two ``pools`` of a
    layer, if there are any.
    """
    packed, cos, sin, norms, eps, unscaled, bias = unturned
    if not len(packed):
        return
    q_norm, k_norm = norms or (cos, cos)
    k_pool, v_pool = pools or (packed, packed)
    x, x_eps = (packed, 0.0) if unscaled is None else (unscaled.x, unscaled.eps)
    width = x.shape[1]
    grid = (len(packed), triton.cdiv(heads.queries + 2 * heads.keys, HEADS))
    rotate_kernel[grid](
        packed, packed.stride(0), x, x.stride(0), x_eps, packed if bias is None else bias, q_norm, k_norm, eps,
        cos, sin, k_pool, v_pool, packed if slots is None else slots, *heads, HEADS,
        triton.next_power_of_2(heads.dim // 2), width, triton.next_power_of_2(width), SCALED=unscaled is not None,
        BIAS=bias is not None, NORM=norms is not None, **chained(packed.device),
    )  # fmt: skip
