"""Moving live blocks on tiny pools, by exact block ids; what a move may not do; ids shuffled from the start."""

from __future__ import annotations

import pytest

from model_free import account, begin, end, run
from pellucid.errors import MoveRefused
from pellucid.kv import REUSE_POLICIES, KVManager, acts
from pellucid.kv.invariants import Auditor
from pellucid.kv.manager import Writing
from pellucid.kv.trail import Trail


def manager(num_blocks: int = 9, **options: object) -> KVManager:
    return KVManager(num_blocks, 4, journal_capacity=None, verify_hits=True, **options)  # type: ignore[arg-type]


def order(kv: KVManager) -> list[int]:
    return list(kv.snapshot().pool.reuse_order)


def check(kv: KVManager) -> None:
    """Counted from the tables up, by the checkers, and folded from the journal."""
    account(kv)
    assert faults(kv) == set()
    assert Auditor(kv).check() == []
    assert kv.journal.fold() == kv.snapshot()


def faults(kv: KVManager) -> set[str]:
    """What the acts break, from the first one on."""
    trail = Trail(kv.journal.base)
    return {fault.invariant for act in kv.journal for fault in trail.follow(act)}


# -- what a move does ----------------------------------------------------------------------------------


def test_a_partly_filled_block_moves_and_is_filled_where_it_is_now() -> None:
    kv = manager()
    a = begin(kv, "a", range(9), slots=6)
    kv.move(2, 7, {})
    assert kv.table("a") == (1, 7)
    assert order(kv) == [3, 4, 5, 6, 8, 2]
    kv.begin_step()
    assert kv.extend(a, 9) == (3,)
    kv.launch(["a"], (3,))
    kv.commit(kv.step, [])
    assert kv.table("a") == (1, 7, 3)
    assert kv.match(kv.open("b", list(range(9)))).blocks == a.blocks[:2]
    check(kv)


def test_a_shared_block_moves_for_all_its_owners() -> None:
    kv = manager()
    begin(kv, "a", [*range(8), 20])
    begin(kv, "b", [*range(8), 30])
    assert (kv.table("a"), kv.table("b")) == ((1, 2, 3), (1, 2, 4))
    kv.move(2, 8, {})
    assert (kv.table("a"), kv.table("b")) == ((1, 8, 3), (1, 8, 4))
    assert kv.snapshot().pool.owners == (0, 2, 0, 1, 1, 0, 0, 0, 2)
    assert list(kv.journal)[-1] == acts.Move(kv.step, ("a", "b"), 2, 8, 0)
    assert begin(kv, "c", [*range(8), 40]).ids == (1, 8, 5)
    check(kv)


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        ("free-first", [6, 7, 8, 4, 2, 3]),
        ("vllm-0.23", [6, 7, 8, 4, 3, 2]),
        ("vllm-0.24", [2, 4, 6, 7, 8, 3]),
    ],
)
def test_the_source_returns_as_a_block_without_content_does(policy: str, expected: list[int]) -> None:
    """Though it was findable: its content has gone with the move."""
    kv = manager(reuse_policy=policy)
    begin(kv, "a", range(8))
    run(kv, "gone", [*range(30, 34), 0])
    kv.move(2, 5, {})
    assert order(kv) == expected
    check(kv)


def test_a_cached_block_is_evicted_by_what_is_moved_there() -> None:
    kv = manager()
    run(kv, "gone", [*range(30, 34), 0])
    begin(kv, "a", range(6))
    assert order(kv) == [5, 6, 7, 8, 2, 1]
    kv.move(4, 1, {})
    assert [*kv.journal][-2:] == [acts.Evict(kv.step, "a", (1,)), acts.Move(kv.step, ("a",), 4, 1, 0)]
    assert (kv.table("a"), order(kv)) == ((3, 1), [5, 6, 7, 8, 2, 4])
    again = begin(kv, "gone", [*range(30, 34), 0])
    assert str(kv.explain("gone")).startswith("gone: asked 5 tokens, hit 0")
    assert "block 0 was evicted at step 2 for a" in str(kv.explain("gone"))
    assert again.ids == (5, 6)
    check(kv)


def test_the_older_of_equal_blocks_is_still_the_older_one() -> None:
    kv = manager()
    first, second = (kv.open(name, list(range(5))) for name in ("a", "b"))
    kv.begin_step()
    hits = [kv.match(table) for table in (first, second)]  # both asked before either was published
    for table, hit in zip((first, second), hits, strict=True):
        kv.admit(table, hit, 5)
    kv.launch(["a", "b"], (5, 5))
    kv.commit(1, [])
    kv.move(1, 8, {})
    assert kv.match(kv.open("c", list(range(5)))).blocks == first.blocks[:1]
    assert first.ids == (8, 2)
    check(kv)


def test_there_and_back_again() -> None:
    kv = manager()
    table = begin(kv, "a", range(6))
    kv.move(2, 8, {})
    kv.move(1, 2, {})
    kv.move(8, 1, {})
    assert (table.ids, order(kv)) == ((2, 1), [3, 4, 5, 6, 7, 8])
    end(kv, table)
    check(kv)


# -- with a step under way -----------------------------------------------------------------------------


def in_flight() -> KVManager:
    """Step 2 is under way and fills a's second block."""
    kv = manager()
    table = begin(kv, "a", range(8), slots=6)
    kv.begin_step()
    kv.extend(table, 8)
    kv.launch(["a"], (2,))
    return kv


def test_a_source_that_is_written_to_is_fenced_until_the_commit() -> None:
    kv = in_flight()
    kv.move(2, 8, {"a": Writing(2, 6, 8)})
    assert kv.table("a") == (1, 8)
    assert (kv.snapshot().pool.fences[2], order(kv)) == (2, [3, 4, 5, 6, 7])
    with pytest.raises(MoveRefused, match="block 2 is fenced"):
        kv.move(1, 2, {"a": Writing(2, 6, 8)})
    kv.commit(2, [])
    assert (kv.snapshot().pool.fences[2], order(kv)) == (0, [3, 4, 5, 6, 7, 2])
    check(kv)


def test_a_source_that_nothing_writes_to_is_free_at_once() -> None:
    kv = in_flight()
    kv.move(1, 8, {"a": Writing(2, 6, 8)})
    assert (kv.table("a"), order(kv)) == ((8, 2), [3, 4, 5, 6, 7, 1])
    check(kv)


def test_a_block_whose_writer_left_keeps_its_fence_when_its_reader_is_moved_away() -> None:
    kv = in_flight()
    table = kv.open("b", [*range(8), 9])
    kv.begin_step()
    kv.admit(table, kv.match(table), 9)
    kv.launch(["b"], (1,))
    kv.close(kv.live_tables()[0], "abort", Writing(2, 6, 8))
    kv.move(2, 8, {"b": Writing(3, 8, 9)})
    assert kv.table("b") == (1, 8, 3)
    assert kv.snapshot().pool.fences[2] == 2
    assert 2 not in order(kv)
    check(kv)
    kv.commit(2, [])
    assert order(kv)[-1] == 2
    kv.commit(3, [])
    check(kv)


# -- what is refused -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("block", "to", "words"),
    [
        (0, 8, "block 0 is reserved, and only a block that somebody holds"),
        (8, 7, "block 8 is free, and only"),
        (1, 8, "block 1 is cached, and only"),
        (9, 8, "block 9 is outside the pool, and only"),
        (-1, 8, "block -1 is outside the pool, and only"),
        (4, 0, "block 0 is reserved; a block can be moved to a free or cached one only"),
        (4, 4, "block 4 is held; a block can be moved"),
        (4, 9, "block 9 is outside the pool; a block can be moved"),
        (4, 1, "block 1 is cached and block 2, the next of its prefix, would outlive it"),
    ],
)
def test_a_move_that_cannot_be_made_changes_nothing(block: int, to: int, words: str) -> None:
    kv = manager()
    run(kv, "gone", range(9))
    begin(kv, "a", range(30, 36))
    assert kv.table("a") == (4, 5)
    before = kv.snapshot()
    with pytest.raises(MoveRefused, match=words):
        kv.move(block, to, {})
    assert kv.snapshot() == before
    kv.move(4, 2, {})  # the deepest of the prefix
    check(kv)


# -- a move told wrongly -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("move", "invariant", "words"),
    [
        (acts.Move(2, ("a",), 1, 3, 0), "I4", "moved over block 3, which 1 own"),
        (acts.Move(2, ("a",), 1, 4, 0), "I6", "moved to 4 while that was findable"),
        (acts.Move(2, ("b",), 1, 8, 0), "I2", "'a' keeps it"),
        (acts.Move(2, ("a", "b"), 1, 8, 0), "I2", "'b' never had it"),
    ],
)
def test_the_journal_of_a_move_that_may_not_be_is_seen_through(move: acts.Move, invariant: str, words: str) -> None:
    kv = manager()
    begin(kv, "a", range(8))
    begin(kv, "b", [50])
    run(kv, "gone", [*range(30, 34), 0])
    auditor = Auditor(kv)
    assert auditor.check() == []
    kv.journal.append(move)
    trail = Trail(kv.journal.base)
    broken = [fault for act in kv.journal for fault in trail.follow(act)]
    assert {fault.invariant for fault in broken} == {invariant}
    assert any(words in fault.message for fault in broken)
    assert "I12" in {violation.invariant for violation in auditor.check()}


def test_a_move_to_where_a_launched_step_may_still_write_is_seen_through() -> None:
    kv = in_flight()
    kv.close(kv.live_tables()[0], "abort", Writing(2, 6, 8))
    other = kv.open("b", [1, 2])
    kv.begin_step()
    kv.admit(other, kv.match(other), 2)
    kv.launch(["b"], (2,))
    assert faults(kv) == set()
    kv.journal.append(acts.Move(kv.step, ("b",), 3, 2, 0))
    assert faults(kv) == {"I10"}


def test_a_fence_that_a_move_forgets_is_seen_when_the_block_is_taken() -> None:
    kv = in_flight()
    kv.move(2, 8, {})  # nobody says that step 2 writes there
    assert faults(kv) == set()
    begin(kv, "b", range(50, 50 + 4 * 6))
    assert faults(kv) == {"I10"}


# -- shuffled ids --------------------------------------------------------------------------------------


@pytest.mark.parametrize("policy", REUSE_POLICIES)
def test_shuffled_ids_are_scattered_from_the_start_and_always_alike(policy: str) -> None:
    kv, again, plain = (manager(reuse_policy=policy, shuffle_blocks=seed) for seed in (7, 7, None))
    assert order(plain) == [1, 2, 3, 4, 5, 6, 7, 8]
    assert order(kv) == order(again) != order(manager(shuffle_blocks=8))
    assert sorted(order(kv)) == order(plain) != order(kv)
    assert list(begin(kv, "a", range(6)).ids) == order(again)[:2]
    check(kv)
