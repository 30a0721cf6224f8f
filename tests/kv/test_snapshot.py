"""A snapshot by itself: what it shows, and that it stays as it was."""

from __future__ import annotations

import pytest

from model_free import begin, end, run
from pellucid.errors import UnknownRequest
from pellucid.kv import BlockState, KVManager
from pellucid.kv.manager import Writing


def scene() -> KVManager:
    """Blocks: 1 and 2 shared by a and b, 3 and 4 their own tails, 5 cached, 6 free, 7 fenced, 8 unused."""
    kv = KVManager(9, 4, journal_capacity=None)
    begin(kv, "a", range(9))
    begin(kv, "b", [*range(8), 50, 51, 52])
    run(kv, "gone", range(60, 64))
    tail, leaving = begin(kv, "tail", [70]), kv.open("leaving", [80])
    kv.begin_step()
    kv.admit(leaving, kv.match(leaving), 1)
    kv.launch(["leaving"], (1,))
    end(kv, tail)
    kv.close(leaving, "abort", Writing(5, 0, 1))
    kv.open("waiting", [1, 2])
    return kv


def test_the_reserved_block_is_told_from_the_usable() -> None:
    pool = scene().snapshot().pool
    assert (pool.total, pool.usable) == (9, 8)
    assert pool.state(0) is BlockState.RESERVED
    assert 0 not in pool.reuse_order


def test_states_and_counts() -> None:
    pool = scene().snapshot().pool
    assert pool.states == ("reserved", "held", "held", "held", "held", "cached", "free", "fenced", "free")
    assert (pool.held, pool.cached, pool.free, pool.fenced, pool.reclaimable) == (4, 1, 2, 1, 3)
    assert pool.owners == (0, 2, 2, 1, 1, 0, 0, 0, 0)
    assert pool.reuse_order == (8, 6, 5)
    assert (pool.taken, pool.returned) == (9, 3)


def test_requests_and_their_blocks() -> None:
    snapshot = scene().snapshot()
    assert [request.name for request in snapshot.requests] == ["a", "b", "waiting"]
    assert snapshot.table("b") == (1, 2, 4)
    assert snapshot.table("waiting") == ()
    view = snapshot.request("b")
    assert (view.status, view.tokens, view.slots, view.cached_tokens) == ("running", 11, 11, 8)
    assert snapshot.owners_of(2) == ("a", "b")
    assert snapshot.launched == (5,)
    with pytest.raises(UnknownRequest, match=r"no live request is named 'c' in this snapshot \(live: a, b, waiting\)"):
        snapshot.table("c")


def test_one_block() -> None:
    snapshot = scene().snapshot()
    shared, fenced = snapshot.block(1), snapshot.block(7)
    assert (shared.state, shared.owners, shared.requests, shared.fence) == ("held", 2, ("a", "b"), 0)
    assert shared.identity is not None
    assert (fenced.state, fenced.owners, fenced.identity, fenced.fence) == ("fenced", 0, None, 5)
    with pytest.raises(IndexError):
        snapshot.block(9)


def test_waste_is_the_unfilled_part_of_last_blocks() -> None:
    assert scene().snapshot().waste == 3 + 1  # 9 of 12 slots, 11 of 12


def test_a_snapshot_does_not_change_with_its_manager() -> None:
    kv = scene()
    before, copy = kv.snapshot(), kv.snapshot()
    kv.commit(5, [])
    run(kv, "later", range(60, 69))
    assert before == copy != kv.snapshot()
    assert before.pool.fences[7] == 5
