"""The bookkeeping of rows: every plan that does not fit what earlier plans left is refused with handle and numbers."""

from __future__ import annotations

import pytest

from pellucid.errors import InvariantViolation
from pellucid.plan import Admission, SamplingParams, StepPlan
from pellucid.runtime.rows import Rows


def changes(*, released: tuple[int, ...] = (), admitted: tuple[tuple[int, int, int], ...] = ()) -> StepPlan:
    """A plan without rows; ``admitted`` is (handle, tokens, prompt length)."""
    admissions = (Admission(h, f"R{h}", tuple(range(n)), p, SamplingParams()) for h, n, p in admitted)
    return StepPlan(0, released, tuple(admissions), (), (), (), (), (), ())


def rows_with(*admitted: tuple[int, int, int]) -> Rows:
    rows = Rows()
    rows.apply(changes(admitted=admitted))
    return rows


def test_a_row_is_followed_from_chunk_to_chunk_to_sample() -> None:
    rows = rows_with((7, 10, 10))
    assert rows[7].computed is None
    rows.advance(7, 0, 6, False)
    rows.advance(7, 6, 4, True)
    row = rows.advance(7, 10, 1, True)
    assert (row.computed, row.known, row.prompt_len) == (11, 12, 10)


def test_the_first_start_is_what_the_prefix_cache_had() -> None:
    assert rows_with((7, 10, 10)).advance(7, 8, 2, True).computed == 10


def test_a_released_place_goes_to_the_next_and_no_two_share_one() -> None:
    rows = rows_with((1, 3, 3), (2, 3, 3), (3, 3, 3))
    place = rows[2].index
    rows.apply(changes(released=(2,), admitted=((4, 3, 3), (5, 3, 3))))
    assert rows[4].index == place
    assert sorted(rows[h].index for h in (1, 3, 4, 5)) == [0, 1, 2, 3]
    assert len(rows) == 4


def test_release_comes_before_admission() -> None:
    rows = rows_with((1, 5, 5))
    rows.advance(1, 0, 5, True)
    rows.apply(changes(released=(1,), admitted=((1, 6, 5),)))
    assert (rows[1].computed, rows[1].known) == (None, 6)


def test_admitting_a_live_row_is_refused() -> None:
    with pytest.raises(InvariantViolation, match="Row 1 is admitted but has not been released"):
        rows_with((1, 5, 5)).apply(changes(admitted=((1, 5, 5),)))


@pytest.mark.parametrize(("tokens", "prompt"), [(3, 4), (3, 0), (0, 0)])
def test_a_prompt_is_at_least_a_token_and_at_most_all(tokens: int, prompt: int) -> None:
    with pytest.raises(InvariantViolation, match=f"Row 1 has {tokens} tokens but a prompt of {prompt}"):
        rows_with((1, tokens, prompt))


def test_unknown_handles_are_refused() -> None:
    rows = rows_with((1, 5, 5))
    with pytest.raises(InvariantViolation, match="no row 2"):
        rows.advance(2, 0, 1, False)
    with pytest.raises(InvariantViolation, match="no row 2"):
        rows.apply(changes(released=(2,)))


@pytest.mark.parametrize("start", [3, 5])
def test_a_start_that_is_not_the_computed_count_is_refused(start: int) -> None:
    rows = rows_with((1, 10, 10))
    rows.advance(1, 0, 4, False)
    with pytest.raises(InvariantViolation, match=f"Row 1 starts at {start}, but 4 of its tokens are computed"):
        rows.advance(1, start, 1, False)


@pytest.mark.parametrize(("start", "count"), [(0, 6), (5, 1), (0, 0), (-1, 2)])
def test_only_known_tokens_are_computed_and_at_least_one(start: int, count: int) -> None:
    with pytest.raises(InvariantViolation, match=f"Row 1 computes {count} tokens from {start}, but knows 5"):
        rows_with((1, 5, 5)).advance(1, start, count, False)


def test_only_the_token_after_the_last_is_sampled() -> None:
    with pytest.raises(InvariantViolation, match="Row 1 samples token 4, but 5 of its tokens are known"):
        rows_with((1, 5, 5)).advance(1, 0, 4, True)
