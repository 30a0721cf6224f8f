"""How a step's decoding contexts are shared out among the programs that read them: once a step, for all its layers.

A context may be read in several parts side by side. There are so many slots for programs at once; some 40 % of them
keep the memory busy already, and a part more costs its start. So contexts of about the same length stay whole, if none
is longer than two and a half times a slot's fair share of all. Else the span of a part is the shortest at which all
parts are at work at once. But of contexts of many lengths the shorter would leave slots idle too soon: there are half
as many parts again as slots, which take turns; and where a context would still be read when all others have been,
because there are many of them, as many parts as there are programs for. (Few requests have no more than slots.)

The longest parts are read first, so that what is under way last is short (Graham 1969, "Bounds on Multiprocessing
Timing Anomalies": LPT); and where equal contexts take turns, those of a last round with room for more parts than
contexts are cut into as many as there is room for.
"""

import triton
import triton.language as tl

from pellucid.triton_launch import announce, await_input

FIELDS = tl.constexpr(8)
"""Words of a part: its request (-1: no part), the token that asks, the first key and the one after the last, the
number of its context's first part, and of parts in that context. Two are left over, so that a part is 32 bytes."""
TILE = 256
"""Requests looked at together."""


@triton.jit
def contexts_of(context_lens, query_start, row, requests, mixed, UNIT: tl.constexpr):
    """Units of UNIT keys in the contexts of the requests ``row``, and which of them compute one token."""
    decodes = row < requests
    if mixed:
        begin = tl.load(query_start + row, mask=decodes, other=0)
        decodes &= tl.load(query_start + row + 1, mask=decodes, other=0) - begin == 1
    return tl.cdiv(tl.load(context_lens + row, mask=decodes, other=0), UNIT), decodes


@triton.jit
def parts_of(units, decodes, span):
    """Parts of contexts of ``units``, none longer than ``span``; a context of nothing is one part of nothing."""
    return tl.where(decodes, tl.maximum(tl.cdiv(units, span), 1), 0)


@triton.jit
def count_parts(context_lens, query_start, requests, mixed, span, UNIT: tl.constexpr, TILE: tl.constexpr):
    """Parts of the contexts of all requests."""
    count = 0
    for start in range(0, requests, TILE):
        row = start + tl.arange(0, TILE)
        units, decodes = contexts_of(context_lens, query_start, row, requests, mixed, UNIT)
        count += tl.sum(parts_of(units, decodes, span), 0)
    return count


@triton.jit
def length_of(units, parts):
    """Units of each of the ``parts`` of a context of ``units``, but of the last, which may have fewer."""
    return tl.cdiv(units, tl.maximum(parts, 1))


@triton.jit
def count_before(context_lens, query_start, requests, mixed, span, row, own, UNIT: tl.constexpr, TILE: tl.constexpr):
    """Parts longer than the ``own`` units that those of request ``row`` have, or as long and of an earlier request."""
    count = 0
    for start in range(0, requests, TILE):
        other = start + tl.arange(0, TILE)
        units, decodes = contexts_of(context_lens, query_start, other, requests, mixed, UNIT)
        parts = parts_of(units, decodes, span)
        length = length_of(units, parts)
        earlier = (length > own) | ((length == own) & (other < row))
        count += tl.sum(tl.where(earlier, parts, 0), 0)
    return count


@triton.jit
def sizes(context_lens, query_start, requests, mixed, UNIT: tl.constexpr, TILE: tl.constexpr):
    """Units of the longest context, and of all; and how many contexts are not empty, and how many are."""
    longest, everything, some, empty = 0, 0, 0, 0
    for start in range(0, requests, TILE):
        row = start + tl.arange(0, TILE)
        units, decodes = contexts_of(context_lens, query_start, row, requests, mixed, UNIT)
        longest = tl.maximum(longest, tl.max(units, 0))
        everything += tl.sum(units, 0)
        some += tl.sum((units > 0).to(tl.int32), 0)
        empty += tl.sum((decodes & (units == 0)).to(tl.int32), 0)
    return longest, everything, some, empty


@triton.jit
def shortest_span(
    context_lens, query_start, requests, mixed, longest, everything, slots, LEAST: tl.constexpr, MOST: tl.constexpr,
    UNIT: tl.constexpr, TILE: tl.constexpr,
):  # fmt: skip
    """The fewest units, at least LEAST, with which there are no more than ``slots`` parts, or, if there are fewer slots
    than requests that decode, one part a context; and no context has more than MOST parts."""
    low = tl.maximum(tl.maximum(LEAST, tl.cdiv(longest, MOST)), tl.cdiv(everything, slots))
    high = tl.maximum(low, longest)
    if slots > requests:  # each context's last part may be shorter: with a slot less for each, all fit for certain
        high = tl.maximum(low, tl.minimum(high, tl.cdiv(everything, slots - requests)))
    while low < high:
        middle = (low + high) // 2
        fits = count_parts(context_lens, query_start, requests, mixed, middle, UNIT, TILE) <= slots
        high = tl.where(fits, middle, high)
        low = tl.where(fits, low, middle + 1)
    return low


@triton.jit
def are_equal(longest, everything, some):
    """Whether the longest of ``some`` contexts is no more than a seventh longer than their mean."""
    return 7 * longest.to(tl.int64) * some <= 8 * everything.to(tl.int64)


@triton.jit
def span_of(
    context_lens, query_start, requests, mixed, longest, everything, some, empty, slots, programs, LEAST: tl.constexpr,
    MOST: tl.constexpr, UNIT: tl.constexpr, TILE: tl.constexpr,
):  # fmt: skip
    """Units of the longest part, as the module says, of contexts of such `sizes`. What is empty takes a program, but no
    time."""
    equal = are_equal(longest, everything, some)
    if equal & (2 * longest.to(tl.int64) * slots <= 5 * everything.to(tl.int64)):
        span = tl.maximum(longest, 1)
    else:
        most = tl.minimum(programs, tl.where(equal, slots, slots * 3 // 2) + empty)
        span = shortest_span(
            context_lens, query_start, requests, mixed, longest, everything, most, LEAST, MOST, UNIT, TILE
        )
        if (most < programs) & (3 * span > 4 * tl.cdiv(everything, slots)):
            span = shortest_span(
                context_lens, query_start, requests, mixed, longest, everything, programs, LEAST, MOST, UNIT, TILE
            )
    return span


@triton.jit
def last_round(requests, longest, everything, some, slots, programs, MOST: tl.constexpr):
    """Of a last round, if there is one and ``programs`` are enough for its parts: how many contexts, the shortest, are
    left for it, how many come before these, and how many parts each has room for."""
    in_turns = are_equal(longest, everything, some) & (some > slots) & (programs >= requests + slots)
    left = tl.where(in_turns, some % slots, 0)
    return left, some - left, tl.minimum(slots // tl.maximum(left, 1), MOST)


@triton.jit
def in_last_round(first, count, units, left, before, room, LEAST: tl.constexpr):
    """Where the parts of a context begin, how many they are, and how many places are theirs, if there is a last round
    (see `last_round`); ``first`` and ``count`` as they were without one."""
    late = first - before
    first += tl.minimum(tl.maximum(late, 0), left) * (room - 1)
    places = count
    if (late >= 0) & (late < left):
        count = tl.minimum(room, tl.cdiv(units, LEAST))
        count = tl.cdiv(units, tl.cdiv(units, count))  # that many need
        places = room
    return first, count, places


@triton.jit(
    do_not_specialize=["requests", "mixed", "slots", "programs", "counters"],
    do_not_specialize_on_alignment=["context_lens", "query_start"],
)
def plan_kernel(
    parts, arrived, context_lens, query_start, requests, mixed, slots, programs, counters, LEAST: tl.constexpr,
    MOST: tl.constexpr, UNIT: tl.constexpr, FIELDS: tl.constexpr, TILE: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """Grid (requests,): each writes the parts of its context to ``parts`` [programs, FIELDS] int32, behind all longer
    parts; the last request marks what is left there, and sets ``arrived`` [counters] int32 to 0. The parts of a
    context have as many units of UNIT keys (a tile of `decode_kernel`) each, and no more than so many parts need; the
    last may have fewer. Each context of a last round has room for equally many, of which it may leave some.

    If ``mixed``, requests that compute another number of tokens than one get no part; otherwise the token of request r
    is token r.
    """
    announce(PDL)
    await_input(PDL)
    row = tl.program_id(0)
    longest, everything, some, empty = sizes(context_lens, query_start, requests, mixed, UNIT, TILE)
    span = span_of(
        context_lens, query_start, requests, mixed, longest, everything, some, empty, slots, programs, LEAST, MOST,
        UNIT, TILE,
    )  # fmt: skip
    left, before, room = last_round(requests, longest, everything, some, slots, programs, MOST)
    units, decodes = contexts_of(context_lens, query_start, row, requests, mixed, UNIT)
    count = parts_of(units, decodes, span)
    own = length_of(units, count)
    first = count_before(context_lens, query_start, requests, mixed, span, row, own, UNIT, TILE)
    first, count, places = in_last_round(first, count, units, left, before, room, LEAST)
    each = tl.maximum(length_of(units, count), 1)
    context = tl.load(context_lens + row)
    token = row
    if mixed:
        token = tl.load(query_start + row)
    part = tl.arange(0, MOST)
    begin = part * each * UNIT
    there, mine = parts + (first + part) * FIELDS, part < count
    tl.store(there, tl.where(mine, row, -1), mask=part < places)
    tl.store(there + 1, token, mask=mine)
    tl.store(there + 2, begin, mask=mine)
    tl.store(there + 3, tl.minimum(begin + each * UNIT, context), mask=mine)
    tl.store(there + 4, first, mask=mine)
    tl.store(there + 5, count, mask=mine)
    if row == requests - 1:
        taken = count_parts(context_lens, query_start, requests, mixed, span, UNIT, TILE) + left * (room - 1)
        for start in range(taken, programs, TILE):
            place = start + tl.arange(0, TILE)
            tl.store(parts + place * FIELDS, -1, mask=place < programs)
        for start in range(0, counters, TILE):
            place = start + tl.arange(0, TILE)
            tl.store(arrived + place, 0, mask=place < counters)
