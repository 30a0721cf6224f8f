"""The scores of a vocabulary, and of each part of it the best, found while it is there: before it goes to memory.

A matrix of so many rows is read as fast as memory allows only if nobody waits: few programs stay, each takes part after
part, and tiles are copied in bulk, by one instruction of one thread each, while those before are multiplied (CUDA
programming guide, "Tensor Memory Access"). Scores that nobody asks for are not written.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import triton
import triton.language as tl

from pellucid.ops.base import Scores
from pellucid.ops.triton_matmul import accumulate, nothing
from pellucid.ops.triton_tiles import Tile, fitted, in_bulk_with
from pellucid.triton_bulk import tiles_of
from pellucid.triton_launch import announce, await_input, chained, processors, upcast
from pellucid.triton_memory import shared_memory

LAST_ID = tl.constexpr(2**31 - 1)


class Part(NamedTuple):
    """What a program computes at a time, one of the ``rows`` of ``tile``, and how many ``programs`` a multiprocessor
    has."""

    tile: Tile
    programs: int


PARTS = (
    Part(Tile(128, 128, rows=16, bulk=True), 2),
    Part(Tile(128, 128, stages=4, rows=64, bulk=True), 1),
    Part(Tile(128, 64, warps=8, stages=4, rows=128, bulk=True), 1),
)
"""The first that holds all rows: the best on an H200 of some twenty each. With more rows, multiplication counts, which
cuBLAS does better; and one row needs no tensor cores, and has its first weights there before it."""


def part_for(weight: torch.Tensor, rows: int) -> Part | None:
    """What a program computes of ``rows`` hidden states; None if that is for others."""
    part = next((part for part in PARTS if rows <= part.tile.rows), None)
    if part is None or rows < 2 or not in_bulk_with(weight):
        return None
    tile, programs = part
    inputs, limit = weight.shape[1], shared_memory(weight.device)
    return Part(fitted(tile, tile.rows, inputs, weight.dtype, limit, f"A vocabulary times {rows} rows"), programs)


@triton.jit
def sort_key(score, token_id):
    """An int64 that is larger for the larger score, and of equal scores for the lower token id."""
    bits = (score + 0.0).to(tl.int32, bitcast=True)  # -0.0 + 0.0 is 0.0, which -0.0 equals
    bits = bits ^ ((bits >> 31) & LAST_ID)  # larger negative numbers have smaller magnitudes
    return (bits.to(tl.int64) << 32) | (token_id ^ LAST_ID).to(tl.int64)


@triton.jit
def token_of(key):
    """The token id in a `sort_key`."""
    return (key & LAST_ID) ^ LAST_ID


@triton.jit(do_not_specialize=["tokens"])
def scores_kernel(
    x, weight, wanted, out, out_stride, best, best_stride, tokens, N: tl.constexpr, K: tl.constexpr,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr, DEPTH: tl.constexpr, STAGES: tl.constexpr, BEST: tl.constexpr,
    PDL: tl.constexpr, UPCAST: tl.constexpr,
):  # fmt: skip
    """Grid (programs): each takes every so-manieth part. ``x`` and ``weight`` are tensor descriptors; what lies
    outside of them is 0, but rows behind ``tokens`` may be anything."""
    await_input(PDL)
    announce(PDL)
    token = tl.arange(0, ROWS)
    there = token < tokens
    stored = there
    if BEST:
        stored &= tl.load(wanted + token, mask=there, other=0) != 0
    for part in tl.range(
        tl.program_id(0), (N + COLUMNS - 1) // COLUMNS, tl.num_programs(0), num_stages=STAGES, flatten=True
    ):
        sums = nothing(ROWS, COLUMNS, 1)
        for start in range(0, K, DEPTH):
            tile = x.load([0, start])
            sums = accumulate(sums, tile, weight.load([part * COLUMNS, start]), ROWS, COLUMNS, DEPTH, 1, UPCAST)
        ids = part * COLUMNS + tl.arange(0, COLUMNS)
        if BEST:
            scores = tl.where((ids < N)[None, :] & (sums == sums), sums, float("-inf"))  # what is no number never wins
            highest = tl.max(scores, 1)
            winner = tl.min(tl.where(scores == highest[:, None], ids[None, :], LAST_ID), 1)
            tl.store(best + token * best_stride + part, sort_key(highest, winner), mask=there)
        tl.store(out + token[:, None].to(tl.int64) * out_stride + ids[None, :], sums, mask=stored[:, None] & (ids < N))


def vocabulary_scores(
    hidden: torch.Tensor, weight: torch.Tensor, part: Part, wanted: torch.Tensor | None = None
) -> Scores:
    """``hidden`` [R, in] times ``weight`` [tokens, in], by programs that compute ``part``: all scores; or, if it is
    known which are ``wanted`` [R] int32, those of the rows where that is not 0, and the best of every part."""
    (rows, inputs), tokens = hidden.shape, len(weight)
    tile, programs = part
    parts = triton.cdiv(tokens, tile.columns)
    out = torch.empty((rows, tokens), dtype=torch.float32, device=hidden.device)
    best = None if wanted is None else torch.empty((rows, parts), dtype=torch.int64, device=hidden.device)
    scores_kernel[(min(parts, processors(hidden.device) * programs),)](
        tiles_of(hidden, tile.rows, tile.first), tiles_of(weight, tile.columns, tile.first),
        wanted if wanted is not None else out, out, tokens, best if best is not None else out, parts, rows, tokens,
        inputs, ROWS=tile.rows, COLUMNS=tile.columns, DEPTH=tile.first, STAGES=tile.stages, BEST=best is not None,
        UPCAST=upcast(hidden.dtype), num_warps=tile.warps, **chained(hidden.device),
    )  # fmt: skip
    return Scores(out, best)
