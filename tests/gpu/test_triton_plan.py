"""The plan of a step's decoding, beside one made in plain Python that tries one span after the other."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import accumulate, count, groupby
from typing import NamedTuple

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from paged_steps import LAYER, Sizes, expected, make_step, pad, verify
from paged_steps import check as check_step

from model_free import examples
from pellucid.attention import triton as triton_attention
from pellucid.attention.triton import LEAST_PART, MOST_PARTS, TritonAttention, decode_tile, processors, programs_for
from pellucid.attention.triton_plan import FIELDS, TILE, plan_kernel
from pellucid.triton_launch import chained

UNIT = 16
"""Keys in what parts are measured in, where nothing else is said."""
UNWRITTEN = 2**30
DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")

Rows = list[tuple[int, int]]
"""(tokens computed, context after them) of each request."""


class Part(NamedTuple):
    """``first`` and ``count``: of its context's parts."""

    request: int
    token: int
    begin: int
    end: int
    first: int
    count: int


def up(number: int, unit: int) -> int:
    """How many of ``unit`` hold ``number``."""
    return -(-number // unit)


def number(context: int, span: int, unit: int) -> int:
    """Parts of ``context`` keys, none longer than ``span`` units."""
    return max(1, up(context, span * unit))


def shortest(contexts: list[int], slots: int, unit: int) -> int:
    """The first span, in units, that leaves no more parts than slots, or one each if those are fewer than contexts."""
    for span in count(LEAST_PART // unit):
        numbers = [number(context, span, unit) for context in contexts]
        if sum(numbers) <= max(slots, len(contexts)) and max(numbers, default=1) <= MOST_PARTS:
            return span
    raise AssertionError


def shared_out(contexts: list[int], slots: int, programs: int, unit: int) -> tuple[list[int], int]:
    """Parts of each of ``contexts``, but for a last round; and how many contexts that is left with."""
    units, some = [up(context, unit) for context in contexts], sum(map(bool, contexts))
    longest, everything = max(units, default=0), sum(units)
    equal = 7 * longest * some <= 8 * everything
    span = max(longest, 1)
    if not equal or 2 * longest * slots > 5 * everything:
        most = min((slots if equal else slots * 3 // 2) + len(contexts) - some, programs)
        span = shortest(contexts, most, unit)
        if most < programs and 3 * span > 4 * up(everything, slots):
            span = shortest(contexts, programs, unit)
    rounds = equal and some > slots and programs >= len(contexts) + slots
    return [number(context, span, unit) for context in contexts], some % slots if rounds else 0


def last_round(context: int, room: int, unit: int) -> int:
    """Parts of a context that has room for so many."""
    fewest = next(parts for parts in count(1) if parts == room or parts * LEAST_PART >= up(context, unit) * unit)
    return up(up(context, unit), up(up(context, unit), fewest))


def plain_plan(rows: Rows, slots: int, unit: int = UNIT, programs: int | None = None) -> list[Part | None]:
    decoding = [(row, context) for row, (tokens, context) in enumerate(rows) if tokens == 1]
    contexts = [context for _, context in decoding]
    counts, left = shared_out(contexts, slots, programs or max(slots, len(rows)), unit)
    shares = [(row, context, own) for (row, context), own in zip(decoding, counts, strict=True)]
    shares.sort(key=lambda share: up(up(share[1], unit), share[2]), reverse=True)
    starts, some = list(accumulate((tokens for tokens, _ in rows), initial=0)), sum(map(bool, contexts))
    parts: list[Part | None] = []
    for place, (row, context, own) in enumerate(shares):
        room = own
        if some - left <= place < some:
            room = min(slots // left, MOST_PARTS)
            own = last_round(context, room, unit)
        each = unit * up(context, own * unit)
        begins = [each * part for part in range(own)]
        first = len(parts)
        parts += [Part(row, starts[row], begin, min(begin + each, context), first, own) for begin in begins]
        parts += [None] * (room - own)
    return trimmed(parts)


def trimmed(parts: list[Part | None]) -> list[Part | None]:
    while parts and parts[-1] is None:
        parts.pop()
    return parts


def planned(
    rows: Rows, slots: int, unit: int = UNIT, tile: int = TILE, programs: int | None = None
) -> list[Part | None]:
    """What the kernel makes: it has set all of ``arrived`` to 0, and written nothing behind the last program."""
    tokens, contexts = zip(*rows, strict=True)
    mixed, programs, kv_heads = set(tokens) != {1}, programs or max(slots, len(rows)), 2
    starts = list(accumulate(tokens, initial=0)) if mixed else [UNWRITTEN] * (len(rows) + 1)
    most = programs + MOST_PARTS * len(rows)
    parts = torch.full((most, FIELDS.value), UNWRITTEN, dtype=torch.int32, device=DEVICE)
    arrived = torch.full((kv_heads * programs + 1,), UNWRITTEN, dtype=torch.int32, device=DEVICE)
    with no_division_by_0():
        plan_kernel[(len(rows),)](
            parts, arrived, torch.tensor(contexts, dtype=torch.int32, device=DEVICE),
            torch.tensor(starts, dtype=torch.int32, device=DEVICE), len(rows), int(mixed), slots, programs,
            kv_heads * programs, LEAST=LEAST_PART // unit, MOST=MOST_PARTS, UNIT=unit, FIELDS=FIELDS.value, TILE=tile,
            **chained(DEVICE),
        )  # fmt: skip
    assert arrived.tolist() == [0] * (kv_heads * programs) + [UNWRITTEN]
    assert (parts[programs:] == UNWRITTEN).all()
    return read(parts[:programs])


@contextmanager
def no_division_by_0() -> Iterator[None]:
    """Of which there is no other sign in the interpreter than a warning."""
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        yield


def read(parts: torch.Tensor) -> list[Part | None]:
    """The parts there are, and None where a program before the last of them has none."""
    return trimmed([None if part[0] == -1 else Part(*part[: len(Part._fields)]) for part in parts.tolist()])


def check(rows: Rows, programs: int, parts: list[Part | None], unit: int = UNIT) -> None:
    """What is promised of any plan, whatever the span."""
    decoding = [row for row, (tokens, _) in enumerate(rows) if tokens == 1]
    starts = list(accumulate((tokens for tokens, _ in rows), initial=0))
    assert len(parts) <= max(programs, len(rows))
    there = [(place, part) for place, part in enumerate(parts) if part]
    contexts = [(row, list(own)) for row, own in groupby(there, lambda pair: pair[1].request)]
    assert sorted(row for row, _ in contexts) == decoding
    for row, places in contexts:
        own = [part for _, part in places]
        context, lengths = rows[row][1], [part.end - part.begin for part in own]
        assert {part[4:] for part in own} == {(places[0][0], len(own))}
        assert [place for place, _ in places] == list(range(places[0][0], places[0][0] + len(own)))
        assert {part.token for part in own} == {starts[row]}
        assert [part.begin for part in own] + [context] == [0] + [part.end for part in own]
        assert not any(part.begin % unit for part in own)
        assert all(lengths) or (context == 0 and len(own) == 1)
        assert len(set(lengths[:-1])) <= 1
        assert lengths[-1] <= lengths[0]
        assert len(own) <= MOST_PARTS
        assert len(own) == 1 or (context > LEAST_PART and lengths[0] > LEAST_PART // 2)


@pytest.mark.parametrize(
    ("rows", "slots", "parts"),
    [
        ([(1, 0)], 3, [(0, 0, 0, 0, 0, 1)]),
        ([(1, 1)], 3, [(0, 0, 0, 1, 0, 1)]),
        ([(1, 64)], 3, [(0, 0, 0, 64, 0, 1)]),
        ([(1, 65)], 3, [(0, 0, 0, 48, 0, 2), (0, 0, 48, 65, 0, 2)]),
        ([(1, 500)], 1, [(0, 0, 0, 500, 0, 1)]),
        ([(1, 500)], 2, [(0, 0, 0, 500, 0, 1)]),
        ([(1, 500)], 3, [(0, 0, 0, 176, 0, 3), (0, 0, 176, 352, 0, 3), (0, 0, 352, 500, 0, 3)]),
        (
            [(1, 160), (1, 0), (1, 33)],  # 10, 0 and 3 units: spans of 4 would make 5 parts
            4,
            [(0, 0, 0, 80, 0, 2), (0, 0, 80, 160, 0, 2), (2, 2, 0, 33, 2, 1), (1, 1, 0, 0, 3, 1)],
        ),
        ([(1, 900), (1, 33)], 1, [(0, 0, 0, 900, 0, 1), (1, 1, 0, 33, 1, 1)]),
        ([(3, 900), (0, 0), (7, 7)], 9, []),
        (
            [(3, 900), (1, 33), (0, 0), (1, 160)],
            3,  # with one more, as requests are four, parts may take turns
            [(3, 4, 0, 64, 0, 3), (3, 4, 64, 128, 0, 3), (3, 4, 128, 160, 0, 3), (1, 3, 0, 33, 3, 1)],
        ),
        (
            [(1, 96), (1, 200), (1, 128)],  # the longest in parts that are shorter than others as they are
            4,
            [(2, 2, 0, 128, 0, 1), (1, 1, 0, 112, 1, 2), (1, 1, 112, 200, 1, 2), (0, 0, 0, 96, 3, 1)],
        ),
    ],
    ids=str,
)
def test_written_out(rows: Rows, slots: int, parts: list[tuple[int, ...]]) -> None:
    assert planned(rows, slots) == [Part(*part) for part in parts] == plain_plan(rows, slots)


CONTEXTS = st.integers(0, 3000) | st.sampled_from([0, 1, UNIT, LEAST_PART, LEAST_PART + 1, 3000])
DECODING = st.lists(st.tuples(st.just(1), CONTEXTS), min_size=1, max_size=8)
MIXED = st.lists(st.tuples(st.sampled_from([0, 1, 1, 2, 7]), CONTEXTS), min_size=1, max_size=8)


@examples(25)
@given(
    rows=DECODING | MIXED,
    slots=st.integers(1, 9) | st.integers(10, 300),
    enough=st.booleans(),
    unit=st.sampled_from([16, 32]),
    tile=st.sampled_from([4, TILE]),
)
def test_any_contexts(rows: Rows, slots: int, enough: bool, unit: int, tile: int) -> None:
    programs = programs_for(len(rows), slots) if enough else max(slots, len(rows))
    parts = planned(rows, slots, unit, tile, programs)
    check(rows, programs, parts, unit)
    assert parts == plain_plan(rows, slots, unit, programs)
    if enough:
        contexts = [context for tokens, context in rows if tokens == 1]
        fair = up(sum(up(context, unit) for context in contexts), slots) * unit
        least = max(LEAST_PART, up(max(contexts, default=0), MOST_PARTS) + unit)
        assert all(part.end - part.begin <= max(least, 2.5 * fair) for part in parts if part)


@pytest.mark.parametrize(("requests", "slots", "programs"), [(2, 5, 5), (3, 5, 8), (52, 132, 132), (53, 132, 185)])
def test_programs_for_parts_that_take_turns(requests: int, slots: int, programs: int) -> None:
    assert programs_for(requests, slots) == programs


def test_more_requests_than_are_looked_at_together(draw: torch.Generator) -> None:
    contexts = torch.randint(0, 300, (TILE + 4,), generator=draw).tolist()
    rows = [(2 if row % 50 == 7 else 1, context) for row, context in enumerate(contexts)]
    parts = planned(rows, 1500)
    check(rows, 1500, parts)
    assert parts == plain_plan(rows, 1500)
    assert len(parts) > len(rows)


def test_contexts_looked_at_before_the_last_ones_count_too() -> None:
    rows = [(1, 3000)] * 5
    assert planned(rows, 40, tile=4) == plain_plan(rows, 40)


def test_the_longest_contexts() -> None:
    """A million tokens: as many parts as may be, and with few slots fewer."""
    rows = [(1, 2**20), (1, 2**20 - 17), (1, 5)]
    for slots in (1056, 20):
        parts = planned(rows, slots)
        check(rows, slots, parts)
        assert parts == plain_plan(rows, slots)


@pytest.mark.parametrize("rows", [[(1, 700), (1, 40)], [(1, 700), (3, 50), (1, 40)]], ids=["decoding", "mixed"])
def test_a_plan_of_a_step(rows: Rows, draw: torch.Generator) -> None:
    step = make_step(rows, Sizes(6, 3), torch.float32, DEVICE, draw)
    tile = decode_tile(len(rows), 2, 16, torch.float32, DEVICE)
    slots = processors(DEVICE) * tile.programs // 3
    plan = TritonAttention().plan(step.q, step.kv, step.layout)
    assert len(plan.parts) == slots
    assert read(plan.parts) == plain_plan(rows, slots, tile.keys)
    assert plan.arrived.tolist() == [0] * (3 * slots)
    assert plan.weights.shape == (3 * slots, 2)
    assert plan.sums.shape == (3 * slots, 2, 16)


def test_more_kv_heads_than_room_for_programs(monkeypatch: pytest.MonkeyPatch, draw: torch.Generator) -> None:
    monkeypatch.setattr(triton_attention, "processors", lambda device: 1)
    rows = [(1, 700), (1, 40)]
    step = make_step(rows, Sizes(16, 16), torch.float32, DEVICE, draw)
    with no_division_by_0():
        plan = TritonAttention().plan(step.q, step.kv, step.layout)
    assert read(plan.parts) == plain_plan(rows, 1, programs=len(rows) + 1)


def test_more_requests_than_programs_at_once(monkeypatch: pytest.MonkeyPatch, draw: torch.Generator) -> None:
    """The longest contexts are cut, as far as a round of programs more allows."""
    monkeypatch.setattr(triton_attention, "processors", lambda device: 1)
    monkeypatch.setattr(triton_attention, "decode_tile", lambda *sizes: decode_tile(*sizes)._replace(programs=2))
    rows = [(1, 40), (1, 900), (1, 64), (1, 100)]
    step = make_step(rows, Sizes(1, 1), torch.float32, DEVICE, draw)
    plan = TritonAttention().plan(step.q, step.kv, step.layout)
    assert len(plan.parts) == 4 + 2
    assert read(plan.parts) == plain_plan(rows, 2, programs=6)
    counts = [(part.request, part.count) for part in read(plan.parts) if part]
    assert counts == [(1, 3)] * 3 + [(3, 1), (2, 1), (0, 1)]


@pytest.mark.parametrize(
    ("contexts", "slots", "parts"),
    [
        ([640] * 4, 4, [1] * 4),
        ([640, 560, 560, 480], 4, [1] * 4),  # a seventh longer than the mean, and no more
        ([656, 560, 560, 480], 4, [2, 1, 1, 1]),  # more: up to six parts, but of the second as many as of the third
        ([6400, 64, 64, 64], 4, [3, 1, 1, 1]),
        ([640] * 4, 10, [1] * 4),  # two and a half fair shares each, and no more
        ([640] * 4, 11, [2] * 4),  # more
        ([800, 700, 700, 650, 600, 500, 400, 0], 8, [2, 2, 2, 2, 2, 1, 1, 1]),
        ([400, 320, 320, 320, 0, 0, 0], 4, [2, 1, 1, 1, 1, 1, 1]),  # what is empty takes none of the six
        ([6400] + [64] * 6, 4, [5] + [1] * 6),  # all eleven there may be: six would leave the first whole
        ([6400] + [64] * 4, 4, [5] + [1] * 4),  # and two parts would be under way when all others have ended
        ([2000] + [800] * 4, 4, [2] + [1] * 4),  # 1,008 keys, where a fair share is 1,300
    ],
)
def test_equal_contexts_stay_whole_and_parts_of_others_take_turns(
    contexts: list[int], slots: int, parts: list[int]
) -> None:
    rows, programs = [(1, context) for context in contexts], len(contexts) + slots
    found = planned(rows, slots, programs=programs)
    assert found == plain_plan(rows, slots, programs=programs)
    assert {part.request: part.count for part in found if part} == dict(enumerate(parts))
    assert len(found) == sum(parts)


@pytest.mark.parametrize(
    ("contexts", "slots", "parts"),
    [
        ([640] * 5, 4, [1, 1, 1, 1, (4, 4)]),  # the fifth would be alone in a second round
        ([640] * 6, 4, [1, 1, 1, 1, (2, 2), (2, 2)]),
        ([640] * 7, 4, [1] * 7),  # which leave no room for more
        ([640] * 8, 4, [1] * 8),
        ([64] * 9, 4, [1] * 9),
        ([80] * 6 + [0, 0], 5, [1, 1, 1, 1, 1, (2, 5), 1, 1]),  # of 48 and 32; what is empty is last
        ([144] * 4, 3, [1, 1, 1, (3, 3)]),
        ([160, 160, 160, 144], 4, [1] * 4),
        ([160, 160, 160, 144], 3, [1, 1, 1, (3, 3)]),
        ([6400] * 66, 65, [1] * 65 + [(58, MOST_PARTS)]),  # of seven units: of six it would be 67
    ],
)
def test_a_last_round_has_as_many_parts_as_there_is_room_for(
    contexts: list[int], slots: int, parts: list[int | tuple[int, int]]
) -> None:
    """``parts``: how many, or that and the room that each has."""
    rows, programs = [(1, context) for context in contexts], len(contexts) + slots
    found = planned(rows, slots, programs=programs)
    assert found == plain_plan(rows, slots, programs=programs)
    check(rows, programs, found)
    counts = [part if isinstance(part, tuple) else (part, part) for part in parts]
    assert [part.count for part in found if part and part.begin == 0] == [count for count, _ in counts]
    firsts = [part.first for part in found if part and part.begin == 0]
    assert firsts == list(accumulate((room for _, room in counts), initial=0))[:-1]


def test_without_programs_for_it_a_last_round_is_like_others() -> None:
    rows, slots = [(1, 640)] * 5, 4
    for missing, padding in ((1, 0), (1, 2)):
        padded, programs = rows + [(1, 0)] * padding, 5 + padding + slots - missing
        found = planned(padded, slots, programs=programs)
        assert found == plain_plan(padded, slots, programs=programs)
        assert [part.count for part in found if part] == [1] * (5 + padding)


@pytest.mark.parametrize("room", [1, 7, 100])
def test_any_number_of_parts_has_the_same_result(
    monkeypatch: pytest.MonkeyPatch, draw: torch.Generator, room: int
) -> None:
    """From one part a context to more than are put together at once; and again on the same plan, as a next layer."""
    monkeypatch.setattr(triton_attention, "processors", lambda device: room)
    monkeypatch.setattr(triton_attention, "decode_tile", lambda *sizes: decode_tile(*sizes)._replace(programs=1))
    step = make_step([(1, 1300), (1, 300), (1, 1), (1, 65)], Sizes(5, 1), torch.float32, DEVICE, draw)
    right, size, _ = expected(step)
    backend = TritonAttention()
    plan = backend.plan(step.q, step.kv, step.layout)
    backend.write(LAYER, step.k, step.v, step.kv, step.layout)
    for _ in range(2):
        out = torch.full_like(step.q, torch.nan)
        backend.attend(LAYER, step.q, step.kv, step.layout, out, plan)
        verify(out, right, size)
        assert not plan.arrived.any()


@pytest.mark.parametrize("slots", [2, 3, 4])
def test_a_last_round_has_the_same_result(monkeypatch: pytest.MonkeyPatch, draw: torch.Generator, slots: int) -> None:
    """Of five contexts one or two are left for it; rows of padding come after them."""
    monkeypatch.setattr(triton_attention, "processors", lambda device: slots)
    monkeypatch.setattr(triton_attention, "decode_tile", lambda *sizes: decode_tile(*sizes)._replace(programs=1))
    rows = [(1, context) for context in (300, 257, 310, 300, 299)]
    step = pad(make_step(rows, Sizes(5, 1), torch.float32, DEVICE, draw), 2, 2, one_token_each=True)
    parts = read(TritonAttention().plan(step.q, step.kv, step.layout).parts)
    least = next(part.count for part in parts if part and part.request == 1)
    assert least == {2: 2, 3: 1, 4: 4}[slots]
    assert not check_step(TritonAttention(), step)[5:].any()


@pytest.mark.parametrize("dim", [16, 64, 128, 256])
def test_parts_are_whole_tiles(draw: torch.Generator, dtype: torch.dtype, dim: int) -> None:
    """A tile that begins amid a block must not run over its end: the next block of the request lies elsewhere."""
    for block_size in (32, 64):
        step = make_step([(1, 80), (1, 81), (1, 150)], Sizes(2, 1, dim, block_size), dtype, DEVICE, draw)
        right, size, _ = expected(step)
        verify(TritonAttention().forward(LAYER, step.q, step.k, step.v, step.kv, step.layout), right, size)
