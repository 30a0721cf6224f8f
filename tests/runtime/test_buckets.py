"""The sizes that steps are padded to."""

from __future__ import annotations

import pytest

from pellucid.errors import InvariantViolation
from pellucid.runtime.buckets import BOUND, Bucket, Buckets, ladder


@pytest.mark.parametrize(("seqs", "budget"), [(256, 2048), (1, 1), (5, 24), (300, 100), (128, 8192)])
def test_every_step_has_a_bucket_which_is_captured_and_wastes_little(seqs: int, budget: int) -> None:
    buckets = Buckets(seqs, budget)
    captured = set(buckets.largest_first)
    assert len(captured) == len(buckets.largest_first)
    for rows in range(1, min(seqs, budget) + 1):
        bucket = buckets.holding(rows, rows)
        assert bucket in captured
        assert bucket.decode
        most = rows * 5 // 4 if rows <= BOUND else max(rows + 15, rows * 9 // 8)
        assert rows <= bucket.rows == bucket.tokens <= min(seqs, max(rows + 7, most))
        admitting = buckets.holding(rows, rows, admits=True)
        assert admitting in captured
        assert admitting.decode == (rows == 1)
    for tokens in range(2, budget + 1):
        bucket = buckets.holding(tokens, 1)
        assert bucket in captured
        assert not bucket.decode
        assert bucket.rows == seqs
        assert tokens <= bucket.tokens <= max(tokens + 63, tokens * 5 // 4)


def test_the_largest_come_first() -> None:
    sizes = [bucket.tokens for bucket in Buckets(256, 2048).largest_first]
    assert sizes == sorted(sizes, reverse=True)
    assert sizes[0] == 2048
    assert len(sizes) < 40


@pytest.mark.parametrize(("tokens", "rows"), [(65, 1), (5, 5)])
def test_a_step_too_large_for_any_is_refused(tokens: int, rows: int) -> None:
    with pytest.raises(InvariantViolation, match=f"{tokens} tokens in {rows} rows is larger than the 64 in 4"):
        Buckets(4, 64).holding(tokens, rows)


def test_ladders() -> None:
    assert ladder(8, 100, 4) == (8, 16, 24, 32, 40, 48, 56, 64, 80, 96, 100)
    assert ladder(16, 300, 8) == (*range(16, 257, 16), 288, 300)
    assert ladder(64, 600, 4) == (64, 128, 192, 256, 320, 384, 448, 512, 600)
    assert ladder(8, 3, 8) == (3,)
    sizes = sorted(bucket.rows for bucket in Buckets(256, 2048).largest_first if bucket.decode)
    assert sizes == [1, 2, 4, *range(8, 64, 8), *range(64, 257, 16)]
    assert Buckets(2, 64).largest_first == (Bucket(64, 2, False), Bucket(2, 2, True), Bucket(1, 1, True))
