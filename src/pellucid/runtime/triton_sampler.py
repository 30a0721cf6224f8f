"""The sampler's rules in two Triton kernels that take all that varies from the device, so that a CUDA graph holds them.

First every row that asks for top-k, top-p or min-p has its lowest kept logit found; other rows leave at once. Then each
row's vocabulary is searched by several programs side by side, whichever way the row samples, and the last of them to
finish writes the token. Scores, filters and random bits are those of `pellucid.runtime.sampler`. Only where two sums
agree to the last digits of a float32 may another token be chosen: the mass at which top-p cuts, or the noisy scores of
the best two. A row whose logits are not numbers gets some token of the vocabulary.
"""

from __future__ import annotations

import math

import torch
import triton
import triton.language as tl

from pellucid.ops.triton_vocabulary import LAST_ID, sort_key, token_of
from pellucid.runtime.controls import Controls
from pellucid.runtime.triton_noise import gumbel_noise, random_bits, stream_key
from pellucid.triton_launch import announce, await_input, chained

LOG_2 = tl.constexpr(math.log(2))
LOG2_E = tl.constexpr(1 / math.log(2))
TINY = tl.constexpr(torch.finfo(torch.float32).tiny)
NEVER = tl.constexpr(-math.inf)
NONE_BEST = tl.constexpr(-(2**63))

PROGRAMS = 2560
"""How many programs should search: some twenty for each multiprocessor of the largest cards, as each has little to do
at a time and waits for it. Many more, and those that find their row `is_settled` take longer to come and go."""
SMALLEST_PART, LARGEST_PART = 512, 16_384
"""Tokens that one program searches: not so few that there is more to combine than to search."""
TILE, TILE_WARPS = 512, 2
"""Tokens that a program looks at together, if it has many: most tiles turn out to need no logarithms."""
WARPS = 4
"""A program that has few tokens looks at them all at once, with so many warps."""
FILTER_TILE, FILTER_WARPS = 4096, 16
"""One program filters a row, over and over: it should have a multiprocessor's breadth."""


def choose(
    logits: torch.Tensor,
    lines: torch.Tensor,
    positions: torch.Tensor,
    controls: Controls,
    out: torch.Tensor,
    best: torch.Tensor | None = None,
) -> None:
    """Choose a token for every row: ``out`` [S] int64 from ``logits`` [S, vocab_size] float32, which stay as they are.

    ``lines`` [S] int32 says where in ``controls`` a row's are, no line twice; -1 is padding and gets token 0.
    ``positions`` [S] int32 are those of the tokens to be chosen. ``best`` [S, parts] int64 is the highest `sort_key` of
    each part of the vocabulary: with it, logits of rows that `takes_best` says yes to are not looked at. What is
    launched depends on the shapes of ``logits`` and ``best`` only, and the host waits for nothing.
    """
    rows, vocab_size = logits.shape
    chain = chained(logits.device)
    shared = (logits, logits.stride(0), lines, positions, controls.words, controls.width, controls.least, vocab_size)
    width = controls.forbidden_width
    keys, parts = (out, 0) if best is None else (best, best.shape[1])
    keep_likely[(rows,)](
        *shared, keys, parts, out, BEST=best is not None, FORBIDDEN=width, TILE=FILTER_TILE, num_warps=FILTER_WARPS,
        **chain,
    )  # fmt: skip
    part = part_size(rows, vocab_size)
    tile, warps = (part, WARPS) if part == SMALLEST_PART else (TILE, TILE_WARPS)
    notes = (controls.best, controls.searched)
    search[(triton.cdiv(vocab_size, part), rows)](
        *shared, *notes, out, part, BEST=best is not None, FORBIDDEN=width, TILE=tile, num_warps=warps, **chain
    )


def part_size(rows: int, vocab_size: int) -> int:
    """Tokens that each program searches, so that there are about `PROGRAMS` of them."""
    fair = triton.next_power_of_2(max(1, rows * vocab_size // PROGRAMS))
    return min(max(fair, SMALLEST_PART), LARGEST_PART)


# ---- A row's controls, in the order of `pellucid.runtime.controls.FIELDS`


@triton.jit
def as_float(word):
    return word.to(tl.float32, bitcast=True)


@triton.jit
def temperature_of(line):
    """0 is greedy."""
    return as_float(tl.load(line))


@triton.jit
def filters_of(line, vocab_size):
    """Top-k (from ``vocab_size`` on: all), top-p (from 1 on: all) and min-p (0: all)."""
    top_k = tl.load(line + 1)
    top_k = tl.where(top_k > 0, top_k, vocab_size)
    return top_k, as_float(tl.load(line + 2)), as_float(tl.load(line + 3))


@triton.jit
def is_filtered(line, vocab_size):
    top_k, top_p, min_p = filters_of(line, vocab_size)
    return (temperature_of(line) > 0) & ((top_k < vocab_size) | (top_p < 1) | (min_p > 0))


@triton.jit
def mixed_seed_of(line):
    low = tl.load(line + 4).to(tl.uint32, bitcast=True).to(tl.uint64)
    return low | (tl.load(line + 5).to(tl.uint32, bitcast=True).to(tl.uint64) << 32)


@triton.jit
def forbids_at(line, position):
    """Whether a stop token may not be sampled at ``position``."""
    return position < tl.load(line + 6)


@triton.jit
def takes_best(line, position):
    """Whether the row's token at ``position`` is simply that of the highest logit."""
    return (temperature_of(line) == 0) & (position >= tl.load(line + 6))


@triton.jit
def is_settled(line, position, BEST: tl.constexpr):
    """Whether the row takes the best of all parts, and they are known (BEST)."""
    return takes_best(line, position) if BEST else False


@triton.jit
def logits_of(row, token_ids, vocab_size):
    """-inf for tokens that lie behind the vocabulary."""
    return tl.load(row + token_ids, mask=token_ids < vocab_size, other=NEVER)


@triton.jit
def allowed(logits, token_ids, line, forbids, FORBIDDEN: tl.constexpr):
    """The ``logits`` of the tokens, -inf for those that are forbidden."""
    if forbids:
        for i in range(FORBIDDEN):
            logits = tl.where(token_ids == tl.load(line + 7 + i), NEVER, logits)
    return logits


@triton.jit
def load_allowed(row, token_ids, vocab_size, line, forbids, FORBIDDEN: tl.constexpr):
    return allowed(logits_of(row, token_ids, vocab_size), token_ids, line, forbids, FORBIDDEN)


# ---- Filters


@triton.jit
def lowest_from(least_score, row, vocab_size, line, forbids, FORBIDDEN: tl.constexpr, TILE: tl.constexpr):
    """The lowest logit whose score is ``least_score`` or more, but for -inf, and the highest of all logits."""
    temperature = temperature_of(line)
    lowest = tl.full([TILE], float("inf"), tl.float32)
    highest = tl.full([TILE], NEVER, tl.float32)
    for start in range(0, vocab_size, TILE):
        logits = load_allowed(row, start + tl.arange(0, TILE), vocab_size, line, forbids, FORBIDDEN)
        kept = (logits > NEVER) & (tl.div_rn(logits, temperature) >= least_score)
        lowest = tl.where(kept & (logits < lowest), logits, lowest)
        highest = tl.where(logits > highest, logits, highest)
    return tl.min(lowest), tl.max(highest)


@triton.jit
def weigh_from(limit, most, rate, row, vocab_size, line, forbids, FORBIDDEN: tl.constexpr, TILE: tl.constexpr):
    """The weights 2 ** (rate · (logit - most)) of the logits from ``limit`` on, summed; the lowest of these logits, and
    the highest of the others."""
    total = tl.zeros([TILE], tl.float32)
    above = tl.full([TILE], float("inf"), tl.float32)
    below = tl.full([TILE], NEVER, tl.float32)
    for start in range(0, vocab_size, TILE):
        logits = load_allowed(row, start + tl.arange(0, TILE), vocab_size, line, forbids, FORBIDDEN)
        higher = logits >= limit
        total += tl.where(higher, tl.exp2((logits - most) * rate), 0.0)
        above = tl.where(higher, tl.minimum(above, logits), above)
        below = tl.where(higher, below, tl.maximum(below, logits))
    return tl.sum(total), tl.min(above), tl.max(below)


@triton.jit
def cut(low, most, enough, rate, row, vocab_size, line, forbids, FORBIDDEN: tl.constexpr, TILE: tl.constexpr):
    """The lowest logit, from ``low`` on, such that all that is above it weighs less than ``enough``.

    A bisection between ``low`` and ``most``, the highest. Both ends move to logits that are there: so the cut is exact,
    equal logits stay together, and it ends when one is left, long before the halves are as near as float32 has them.
    """
    high = most
    while low < high:
        middle = 0.5 * low + 0.5 * high
        limit = tl.where((low < middle) & (middle < high), middle, high)
        weight, above, below = weigh_from(limit, most, rate, row, vocab_size, line, forbids, FORBIDDEN, TILE)
        too_much = weight >= enough
        low = tl.where(too_much, above, low)
        high = tl.where(too_much, high, below)
    return low


@triton.jit
def keep_likely(
    logits,
    stride,
    lines,
    positions,
    words,
    words_width,
    least,
    vocab_size,
    best,
    parts,
    out,
    BEST: tl.constexpr,
    FORBIDDEN: tl.constexpr,
    TILE: tl.constexpr,
    PDL: tl.constexpr,
):
    """The lowest logit that min-p, then top-k, then top-p keep goes to ``least``, if the row asks for any of them.

    What a score (logit / temperature) decides can be decided by logits, as division leaves their order alone. A row
    that `is_settled` gets its token here, in ``out``.
    """
    await_input(PDL)
    announce(PDL)
    index = tl.program_id(0)
    place = tl.load(lines + index)
    if place < 0:
        return
    line = words + place * words_width
    if is_settled(line, tl.load(positions + index), BEST):
        keys = tl.full([TILE], NONE_BEST, tl.int64)
        for start in range(0, parts, TILE):
            part = start + tl.arange(0, TILE)
            keys = tl.maximum(keys, tl.load(best + index * parts + part, mask=part < parts, other=NONE_BEST))
        tl.store(out + index, token_of(tl.max(keys)))
        return
    if not is_filtered(line, vocab_size):
        return
    row = logits + index.to(tl.int64) * stride
    forbids = forbids_at(line, tl.load(positions + index))
    temperature = temperature_of(line)
    top_k, top_p, min_p = filters_of(line, vocab_size)
    low, most = lowest_from(NEVER, row, vocab_size, line, forbids, FORBIDDEN, TILE)
    if min_p > 0:
        least_score = tl.div_rn(most, temperature) + tl.log(min_p)
        low, _ = lowest_from(least_score, row, vocab_size, line, forbids, FORBIDDEN, TILE)
    if top_k < vocab_size:
        low = cut(low, most, top_k.to(tl.float32), 0.0, row, vocab_size, line, forbids, FORBIDDEN, TILE)
    if top_p < 1:
        rate = 1 / temperature * LOG2_E
        mass, _, _ = weigh_from(low, most, rate, row, vocab_size, line, forbids, FORBIDDEN, TILE)
        enough = tl.maximum(top_p * mass, TINY)  # a smaller one is 0, and would leave nothing
        low = cut(low, most, enough, rate, row, vocab_size, line, forbids, FORBIDDEN, TILE)
    tl.store(least + place, low)


# ---- Search


@triton.jit
def most_score(logits, bits, rate, least_score):
    """No less than the scores, noise included, that logits have with random bits and temperature 1 / ``rate``; -inf for
    most that are filtered out.

    All that makes the noise small is left out: -log1p(-u) >= u, the lower half of u's bits, and what log2 is more than
    the bits of a float32, read as an integer, say: 2^23 · (log2(u) + 127) or up to 0.0861 · 2^23 less. The last digits
    of all these steps are far below the 1e-3 on top, and those of the division below a millionth.
    """
    scores = logits * rate
    scores += tl.abs(scores) * 1e-6
    upper_half = (bits >> 32).to(tl.uint32).to(tl.float32)
    noise = upper_half.to(tl.int32, bitcast=True).to(tl.float32) * (-LOG_2 / 2**23) + ((127 + 32) * LOG_2 + 1e-3)
    return tl.where(scores >= least_score, scores + noise, NEVER)


@triton.jit
def search(
    logits,
    stride,
    lines,
    positions,
    words,
    words_width,
    least,
    vocab_size,
    best,
    searched,
    out,
    part_size,
    BEST: tl.constexpr,
    FORBIDDEN: tl.constexpr,
    TILE: tl.constexpr,
    PDL: tl.constexpr,
):
    """The best of a part of a row's tokens joins the best of the other parts; the last part to come writes ``out``."""
    await_input(PDL)
    announce(PDL)
    part, index = tl.program_id(0), tl.program_id(1)
    place = tl.load(lines + index)
    if place < 0:
        tl.store(out + index, 0)
        return
    line = words + place * words_width
    row = logits + index.to(tl.int64) * stride
    position = tl.load(positions + index)
    if is_settled(line, position, BEST):
        return  # `keep_likely` has chosen
    forbids = forbids_at(line, position)
    temperature = temperature_of(line)
    key = stream_key(mixed_seed_of(line), position)
    least_score = tl.full([], NEVER, tl.float32)
    if is_filtered(line, vocab_size):
        least_score = tl.div_rn(tl.load(least + place), temperature)

    start = part * part_size
    won, winner = tl.full([], NEVER, tl.float32), start
    following = logits_of(row, start + tl.arange(0, TILE), vocab_size)
    for first in range(start, start + part_size, TILE):
        token_ids = first + tl.arange(0, TILE)
        scores = allowed(following, token_ids, line, forbids, FORBIDDEN)
        if first + TILE < start + part_size:  # a tile ahead: what is done with one depends on those before
            following = logits_of(row, token_ids + TILE, vocab_size)
        limits = scores
        if temperature > 0:
            limits = most_score(scores, random_bits(key, token_ids), 1 / temperature, least_score)
        if tl.max(limits) > won:
            if temperature > 0:
                scores = tl.div_rn(scores, temperature)
                scores = tl.where(scores >= least_score, scores + gumbel_noise(random_bits(key, token_ids)), NEVER)
            score = tl.max(scores)
            if score > won:
                won, winner = score, tl.min(tl.where(scores == score, token_ids, LAST_ID))

    tl.atomic_max(best + place, sort_key(won, winner), sem="relaxed")
    if tl.atomic_add(searched + place, 1) == tl.num_programs(0) - 1:  # releases this part's best, acquires the others'
        tl.store(out + index, token_of(tl.atomic_xchg(best + place, NONE_BEST, sem="relaxed")))
        tl.store(searched + place, 0)
