"""Every queried token hits or misses for one reason, and the sums are exact."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from model_free import begin, end, examples, run
from pellucid.kv import KVManager
from pellucid.kv.acts import Lookup, LookupKind, Miss, MissReason
from pellucid.kv.ledger import MissLedger
from pellucid.kv.manager import Writing
from pellucid.kv.snapshot import HitCount


def manager(num_blocks: int = 9) -> KVManager:
    return KVManager(num_blocks, 4, journal_capacity=None)


def lookup(kv: KVManager, name: str, prompt: list[int], **options: object) -> Lookup:
    table = begin(kv, name, prompt, **options)
    end(kv, table)
    assert table.lookup is not None
    assert sum(miss.tokens for miss in table.lookup.missed) == table.lookup.asked - table.lookup.hit
    return table.lookup


def test_never_seen_and_shorter_than_a_block() -> None:
    found = lookup(manager(), "a", list(range(10)))
    assert (found.kind, found.asked, found.hit) == (LookupKind.FIRST, 10, 0)
    assert found.missed == (Miss(MissReason.NEVER_SEEN, 8, 0), Miss(MissReason.SHORT, 2, 2))


def test_a_prompt_shorter_than_a_block() -> None:
    assert lookup(manager(), "a", [1, 2, 3]).missed == (Miss(MissReason.SHORT, 3, 0),)


def test_the_last_block_rule() -> None:
    kv = manager()
    run(kv, "a", range(8))
    found = lookup(kv, "b", list(range(8)))
    assert found.hit == 4
    assert found.missed == (Miss(MissReason.LAST_BLOCK, 4, 1),)


def test_a_full_hit_up_to_the_tail_misses_only_the_tail() -> None:
    kv = manager()
    run(kv, "a", range(9))
    found = lookup(kv, "b", list(range(9)))
    assert (found.hit, found.missed) == (8, (Miss(MissReason.SHORT, 1, 2),))


def test_an_evicted_block_names_the_step_and_for_whom() -> None:
    kv = manager(num_blocks=5)
    run(kv, "a", range(8))  # step 1: blocks 1 and 2
    run(kv, "hungry", range(20, 32))  # step 2 takes 3, 4 and 2
    found = lookup(kv, "again", [*range(8), 90])
    assert found.hit == 4
    assert found.missed == (Miss(MissReason.EVICTED, 4, 1, 2, "hungry"), Miss(MissReason.SHORT, 1, 2))


def test_evictions_by_two_requests_are_two_entries() -> None:
    kv = manager(num_blocks=6)
    run(kv, "a", range(12))  # step 1: 1, 2, 3
    run(kv, "first", range(20, 32))  # step 2: 4, 5, 3
    run(kv, "second", range(40, 44))  # step 3: the longest returned, 2
    found = lookup(kv, "again", [*range(12), 90])
    assert found.missed == (
        Miss(MissReason.EVICTED, 4, 1, 3, "second"),
        Miss(MissReason.EVICTED, 4, 2, 2, "first"),
        Miss(MissReason.SHORT, 1, 3),
    )


def test_what_was_evicted_and_computed_again_hits_again() -> None:
    kv = manager(num_blocks=4)
    run(kv, "a", range(8))
    run(kv, "b", range(20, 32))
    run(kv, "a2", range(8))
    assert lookup(kv, "a3", [*range(8), 90]).hit == 8


def test_the_same_tokens_under_another_salt_or_adapter() -> None:
    kv = manager(num_blocks=20)
    run(kv, "a", range(8), salt="s")
    other = (Miss(MissReason.NAMESPACE, 8, 0), Miss(MissReason.SHORT, 1, 2))
    assert lookup(kv, "b", list(range(9))).missed == other
    assert lookup(kv, "c", list(range(9)), salt="t").missed == other
    assert lookup(kv, "d", list(range(9)), adapter=("s", "1")).missed == other
    assert lookup(kv, "e", list(range(9)), salt="s").hit == 8


def test_another_prefix_under_another_salt_is_never_seen() -> None:
    kv = manager()
    run(kv, "a", range(8), salt="s")
    found = lookup(kv, "b", [90, *range(1, 8)])
    assert found.missed == (Miss(MissReason.NEVER_SEEN, 8, 0),)


def test_a_bypass_is_no_miss() -> None:
    kv = manager()
    run(kv, "a", range(9))
    found = lookup(kv, "b", list(range(9)), skip_lookup=True)
    assert (found.kind, found.asked, found.hit) == (LookupKind.BYPASS, 9, 0)
    assert found.missed == (Miss(MissReason.BYPASS, 9, 0),)


def test_a_resume_is_counted_apart() -> None:
    kv = manager()
    table, other = begin(kv, "a", range(9)), begin(kv, "b", range(20, 24))
    kv.begin_step()
    kv.preempt(table, other, None)
    kv.admit(table, kv.match(table), 9)
    assert kv.snapshot().hits == {
        LookupKind.FIRST: HitCount(2, 13, 0),
        LookupKind.RESUME: HitCount(1, 9, 8),
    }


def test_once_something_is_forgotten_nothing_is_never_seen() -> None:
    kv = manager(num_blocks=4)
    kv.ledger = MissLedger(kv.pool.index, remembered=2)
    run(kv, "a", range(8))  # 1, 2
    run(kv, "b", range(20, 32))  # 3, 2, 1: two evictions, both remembered
    assert lookup(kv, "new", [70, 71, 72, 73]).missed == (Miss(MissReason.NEVER_SEEN, 4, 0),)  # a third
    found = lookup(kv, "a2", [*range(8), 90])  # the oldest is forgotten: which of the blocks, if any, cannot be told
    assert [miss.reason for miss in found.missed] == [MissReason.EVICTED, MissReason.UNKNOWN, MissReason.SHORT]
    assert lookup(kv, "new2", [80, 81, 82, 83]).missed == (Miss(MissReason.UNKNOWN, 4, 0),)


def test_the_counters_add_up_over_lookups() -> None:
    kv = manager(num_blocks=5)
    for number in range(6):
        run(kv, f"r{number}", [*range(4), *range(10 * number, 10 * number + 6)])
    count, missed = kv.snapshot().hits[LookupKind.FIRST], kv.snapshot().missed
    assert count == HitCount(6, 60, 20)
    assert sum(missed.values()) == 40
    assert kv.snapshot().evictions == kv.ledger.evictions > 0


prompts = st.builds(
    lambda base, length, tail: [*([base] * length), *tail],
    st.integers(1, 2),
    st.integers(1, 9),
    st.lists(st.integers(1, 3), max_size=3),
)


@examples(60)
@given(st.lists(st.tuples(prompts, st.sampled_from([None, None, "s"]), st.booleans()), max_size=12), st.booleans())
def test_asked_is_hit_plus_missed_whatever_happens(
    requests: list[tuple[list[int], str | None, bool]], forgetful: bool
) -> None:
    kv = KVManager(8, 2, journal_capacity=None)
    if forgetful:
        kv.ledger = MissLedger(kv.pool.index, remembered=1)
    for number, (prompt, salt, skip) in enumerate(requests):
        lookup(kv, f"r{number}", prompt, salt=salt, skip_lookup=skip)
    hits, missed = kv.snapshot().hits, kv.snapshot().missed
    assert sum(count.asked - count.hit for count in hits.values()) == sum(missed.values())
    assert sum(count.requests for count in hits.values()) == len(requests)


def test_what_left_before_it_was_computed_is_withdrawn() -> None:
    kv = KVManager(9, 4)
    kv.begin_step()
    table = kv.open("w", [1, 2, 3, 4, 5])
    kv.admit(table, kv.match(table), 5)
    kv.launch(["w"], (5,))
    kv.close(table, "abort", Writing(1, 0, 5))
    kv.commit(1, [])
    run(kv, "x", [1, 2, 3, 4, 5])
    assert "block 0 was withdrawn at step 1, as w left before computing it" in str(kv.explain("x"))
    run(kv, "y", [1, 2, 3, 4, 5])
    assert kv.explain("y").hit == 4  # x has computed it


def test_an_old_loss_is_forgotten_when_the_content_is_back() -> None:
    kv = KVManager(3, 4)
    run(kv, "a", [1, 2, 3, 4])
    run(kv, "b", [9] * 8)
    run(kv, "c", [1, 2, 3, 4])
    assert "evicted at step 2 for b" in str(kv.explain("c"))
    run(kv, "d", [8] * 8)
    run(kv, "e", [1, 2, 3, 4])
    assert "evicted at step 4 for d" in str(kv.explain("e"))
