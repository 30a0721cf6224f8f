from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pellucid.view import runs


@pytest.mark.parametrize(
    ("ids", "text"),
    [
        ([], "-"),
        ([7], "7"),
        ([7, 7], "7 7"),
        (range(1, 23), "1-22"),
        ([*range(67, 80), *range(44, 30, -1)], "67-79 44-31"),
        ([1, 2, 3, 2, 1], "1-3 2-1"),
        ([1, 3, 5], "1 3 5"),
        ([30, 34], "30 34"),
    ],
)
def test_runs_are_what_people_write(ids: list[int], text: str) -> None:
    assert runs(ids) == text


@given(st.lists(st.integers(0, 12)))
def test_runs_lose_nothing(ids: list[int]) -> None:
    read: list[int] = []
    for run in runs(ids).split():
        if run != "-":
            first, _, last = run.partition("-")
            a, b = int(first), int(last or first)
            read += range(a, b + 1) if a <= b else range(a, b - 1, -1)
    assert read == ids
