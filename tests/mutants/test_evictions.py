"""What the miss ledger remembers of a content that was given up more than once."""

from __future__ import annotations

from pellucid.kv import KVManager, acts
from pellucid.kv.ledger import MissLedger


def test_a_content_evicted_again_is_the_youngest_memory() -> None:
    kv = KVManager(9, 4)
    ledger = MissLedger(kv.pool.index, remembered=2)
    table = kv.open("a", list(range(9)))
    first, second = table.chain(2)
    for step, identity in enumerate((first, second, first, b"another"), start=1):
        ledger.evicted(identity, step, "b")
    assert ledger.explain(table, 0)[:2] == (
        acts.Miss(acts.MissReason.EVICTED, 4, 0, 3, "b"),
        acts.Miss(acts.MissReason.UNKNOWN, 4, 1),
    )


def test_a_content_that_is_back_takes_no_room_in_the_memory() -> None:
    kv = KVManager(9, 4)
    ledger = MissLedger(kv.pool.index, remembered=1)
    table = kv.open("a", list(range(9)))
    first, second = table.chain(2)
    ledger.evicted(first, 1, "b")
    ledger.published(first)
    ledger.evicted(second, 2, "c")
    assert ledger.explain(table, 0)[:2] == (
        acts.Miss(acts.MissReason.NEVER_SEEN, 4, 0),  # nothing lost has been forgotten, so this is still claimed
        acts.Miss(acts.MissReason.EVICTED, 4, 1, 2, "c"),
    )
