"""Memory in large pages: where it begins, what is in it, and that nobody gets another's."""

from __future__ import annotations

import itertools
import mmap
from functools import partial

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from model_free import examples
from pellucid.pages import CHUNK, PAGE, Arena, paged_bytes

AT_ONCE = pytest.mark.parametrize("at_once", [True, False], ids=["at once", "in time"])


@AT_ONCE
@pytest.mark.parametrize("nbytes", [0, 1, 63, 4096, PAGE - 1, PAGE, PAGE + 1, 3 * PAGE + 5])
def test_as_many_zero_bytes_as_asked_for(nbytes: int, at_once: bool) -> None:
    memory = paged_bytes(nbytes, at_once=at_once)
    assert (memory.dtype, memory.shape) == (torch.uint8, (nbytes,))
    assert not memory.any()
    memory.fill_(255)
    assert memory.all()


@AT_ONCE
@pytest.mark.skipif(not hasattr(mmap, "MADV_HUGEPAGE"), reason="large pages are asked for on Linux only")
@pytest.mark.parametrize("nbytes", [PAGE, PAGE + 1, 5 * PAGE])
def test_begins_at_a_large_page(nbytes: int, at_once: bool) -> None:
    assert all(paged_bytes(nbytes, at_once=at_once).data_ptr() % PAGE == 0 for _ in range(3))


@AT_ONCE
def test_outlives_its_maker(at_once: bool) -> None:
    """The mapping goes when the last tensor on it goes, not before."""
    part = paged_bytes(2 * PAGE, at_once=at_once)[PAGE:].view(torch.float32)[:10]
    part.fill_(7)
    others = [paged_bytes(2 * PAGE, at_once=at_once).fill_(1) for _ in range(3)]
    assert part.tolist() == [7] * 10
    assert all(other.all() for other in others)


@pytest.mark.parametrize("nbytes", [2**60, 2**64])
def test_more_than_there_is_is_refused(nbytes: int) -> None:
    for take in (partial(paged_bytes, at_once=True), partial(paged_bytes, at_once=False), Arena().take):
        with pytest.raises((OSError, OverflowError)):
            take(nbytes)


def test_an_arena_is_of_use_after_a_refusal() -> None:
    arena = Arena()
    first = arena.take(100).fill_(1)
    with pytest.raises(OSError):
        arena.take(2**60)
    second = arena.take(100)
    assert not second.any()
    assert first.all()


@examples(15)
@given(st.lists(st.integers(0, 300) | st.sampled_from([CHUNK // 2, CHUNK - 64, CHUNK + 1]), max_size=5))
def test_parts_of_an_arena_never_overlap(sizes: list[int]) -> None:
    arena = Arena()
    parts = [arena.take(nbytes) for nbytes in sizes]
    assert [len(part) for part in parts] == sizes
    places = sorted((part.data_ptr(), len(part)) for part in parts if len(part))
    assert all(start % 64 == 0 for start, _ in places)
    assert all(start + nbytes <= after for (start, nbytes), (after, _) in itertools.pairwise(places))


def test_each_part_keeps_what_was_written_to_it() -> None:
    arena = Arena()
    parts = [arena.take(nbytes) for nbytes in (1, 0, 64, 65, 1000, CHUNK, 3)]
    assert not any(part.any() for part in parts)
    for number, part in enumerate(parts):
        part.fill_(number + 1)
    assert all((part == number + 1).all() for number, part in enumerate(parts))


def test_small_parts_share_a_chunk() -> None:
    arena = Arena()
    assert len({arena.take(1000).untyped_storage().data_ptr() for _ in range(100)}) == 1
