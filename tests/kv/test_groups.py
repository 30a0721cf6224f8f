"""Several KV groups in one pool, as an observed engine may have them: folded, checked, and never called "the" table."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from pellucid.errors import SeveralGroups
from pellucid.kv import acts
from pellucid.kv.fold import Fold
from pellucid.kv.invariants import check_balance, check_lengths, check_owners, check_states
from pellucid.kv.manager import KVManager
from pellucid.kv.snapshot import GroupView, Snapshot

FULL, WINDOW = 0, 1


def empty() -> Snapshot:
    """Nine blocks of 4, two groups: full attention, and a sliding window of 6 tokens."""
    base = KVManager(9, 4, reuse_policy="vllm-0.24").snapshot()
    return replace(base, groups=(GroupView("full attention", 4), GroupView("sliding window", 4, window=6)))


def after(*told: acts.AnyAct) -> Snapshot:
    fold = Fold(empty())
    for act in told:
        fold.apply(act)
    return fold.snapshot()


PREFIX = (
    acts.Open(0, "a", 9, b""),
    acts.Admit(1, "a", 0),
    acts.Take(1, "a", (1, 2, 3), FULL),
    acts.Take(1, "a", (4, 5, 6), WINDOW),
    acts.Publish(1, "a", (1, 2, 4, 5), (b"1", b"2", b"4", b"5")),
    acts.Launch(1, ("a",), (9,)),
    acts.Commit(1, 1, ("a",)),
)


def violations(snapshot: Snapshot) -> list[str]:
    checks = (check_states, check_owners, check_lengths, check_balance)
    return [violation.invariant for check in checks for violation in check(snapshot)]


def test_each_group_has_its_table_and_none_is_the_table() -> None:
    request = after(*PREFIX).request("a")
    assert request.tables == ((1, 2, 3), (4, 5, 6))
    assert request.held == (1, 2, 3, 4, 5, 6)
    with pytest.raises(
        SeveralGroups, match="'a' has 2 block tables, one for each KV group, and none of them is the table"
    ):
        _ = request.blocks


def test_a_window_leaves_block_0_in_its_place() -> None:
    snapshot = after(*PREFIX, acts.Drop(2, "a", (4,), (0,), WINDOW))
    assert snapshot.request("a").tables == ((1, 2, 3), (0, 5, 6))
    assert snapshot.pool.owners[4] == 0
    assert snapshot.pool.reuse_order == (7, 8, 4)  # it is cached still
    assert snapshot.owners_of(0) == ()
    assert violations(snapshot) == []


def test_a_hit_behind_a_window_shares_block_0_with_nobody() -> None:
    snapshot = after(
        *PREFIX,
        acts.Open(2, "b", 9, b""),
        acts.Share(2, "b", (1, 2), (), FULL),
        acts.Share(2, "b", (0, 5), (), WINDOW),
        acts.Admit(2, "b", 8),
    )
    assert snapshot.request("b").tables == ((1, 2), (0, 5))
    assert snapshot.pool.owners[:6] == (0, 2, 2, 1, 1, 2)
    assert violations(snapshot) == []


def test_every_table_returns() -> None:
    snapshot = after(
        *PREFIX,
        acts.Return(2, "a", (3, 2, 1), (), 0, FULL),
        acts.Return(2, "a", (6, 5, 4), (), 0, WINDOW),
        acts.Close(2, "a", 10, "length"),
    )
    assert snapshot.pool.reuse_order == (6, 3, 7, 8, 2, 1, 5, 4)
    assert violations(snapshot) == []


def test_a_reset_forgets_content_and_moves_nothing() -> None:
    before = after(*PREFIX, acts.Drop(2, "a", (4,), (0,), WINDOW))
    snapshot = after(*PREFIX, acts.Drop(2, "a", (4,), (0,), WINDOW), acts.Forget(2, (1, 2, 4, 5)))
    assert set(snapshot.pool.identities) == {None}
    assert snapshot.pool.reuse_order == before.pool.reuse_order


def test_a_block_in_no_table_is_seen_in_any_group() -> None:
    lost = after(*PREFIX, acts.Drop(2, "a", (5,), (2,), WINDOW))  # block 6 is gone from the table, not block 5
    assert "I2" in violations(lost)
