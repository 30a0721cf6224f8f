"""The KV manager on tiny pools, by exact block ids."""

from __future__ import annotations

import pytest

from model_free import account, begin, end, grow, run
from pellucid.errors import ConfigError, DuplicateRequest, FinishedRequest, InvariantViolation, UnknownRequest
from pellucid.kv import KVManager
from pellucid.kv.block import Content
from pellucid.kv.manager import REMEMBERED_REQUESTS, Writing


def manager(num_blocks: int = 9, block_size: int = 4, **options: object) -> KVManager:
    return KVManager(num_blocks, block_size, journal_capacity=None, **options)  # type: ignore[arg-type]


def order(kv: KVManager) -> list[int]:
    return list(kv.snapshot().pool.reuse_order)


def findable(kv: KVManager) -> list[int]:
    return [block for block, identity in enumerate(kv.snapshot().pool.identities) if identity is not None]


# -- construction --------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [-4, 0, 3, 12, 255, 512])
def test_only_powers_of_two_up_to_256_are_block_sizes(size: int) -> None:
    with pytest.raises(ConfigError, match=f"block_size {size} is not supported; choose a power of two from 1 to 256"):
        KVManager(9, size)


@pytest.mark.parametrize("size", [1, 2, 4, 8, 16, 32, 64, 128, 256])
def test_every_power_of_two_up_to_256_is_a_block_size(size: int) -> None:
    kv = KVManager(4, size)
    assert [kv.blocks_for(tokens) for tokens in (0, 1, size, size + 1, 2 * size)] == [0, 1, 1, 2, 2]


# -- open, admit, extend -------------------------------------------------------------------------------


def test_opening_takes_nothing() -> None:
    kv = manager()
    kv.open("a", [1, 2, 3])
    assert kv.table("a") == ()
    assert order(kv) == [1, 2, 3, 4, 5, 6, 7, 8]
    assert kv.snapshot().request("a").cached_tokens is None


def test_admission_takes_as_many_blocks_as_tokens_need() -> None:
    kv = manager()
    assert begin(kv, "a", range(5)).ids == (1, 2)
    assert begin(kv, "b", range(10, 14)).ids == (3,)
    assert order(kv) == [4, 5, 6, 7, 8]
    account(kv)


def test_a_chunked_admission_takes_only_what_its_first_chunk_needs() -> None:
    kv = manager()
    table = begin(kv, "a", range(20), slots=6)
    assert (table.ids, table.slots) == ((1, 2), 6)
    kv.begin_step()
    assert kv.extend(table, 14) == (3, 4)
    assert findable(kv) == [1, 2, 3]
    assert table.slots == 14


def test_growing_takes_a_block_only_at_a_block_edge() -> None:
    kv = manager()
    table = begin(kv, "a", [1, 2, 3])
    assert [grow(kv, table, token) for token in (4, 5, 6, 7, 8, 9)] == [(), (2,), (), (), (), (3,)]
    assert table.ids == (1, 2, 3)


def test_a_pool_that_is_empty_changes_nothing() -> None:
    kv = manager(num_blocks=4)
    table = begin(kv, "a", range(8))
    begin(kv, "b", range(50, 53))
    table.tokens.append(99)
    kv.begin_step()
    before = kv.snapshot()
    assert kv.extend(table, 9) is None
    assert kv.snapshot() == before
    assert (table.slots, table.ids) == (8, (1, 2))


def test_admission_without_room_is_a_fault_of_the_caller() -> None:
    kv = manager(num_blocks=3)
    table = kv.open("a", list(range(9)))
    kv.begin_step()
    with pytest.raises(InvariantViolation, match="'a' was admitted without room for its 9 tokens"):
        kv.admit(table, kv.match(table), 9)


def test_a_live_name_is_refused_and_a_finished_one_is_free_again() -> None:
    kv = manager()
    table = begin(kv, "a", [1])
    before = kv.snapshot()
    with pytest.raises(DuplicateRequest, match="already named 'a'"):
        kv.open("a", [2])
    assert kv.snapshot() == before
    end(kv, table)
    kv.open("a", [2])
    assert kv.table("a") == ()


# -- prefix hits ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("length", range(1, 18))
def test_a_repeated_prompt_hits_all_blocks_before_its_last_token(length: int) -> None:
    kv = manager()
    first = run(kv, "a", range(length))
    table = kv.open("b", list(range(length)))
    hit = kv.match(table)
    assert hit.tokens == (length - 1) // 4 * 4
    assert tuple(block.id for block in hit.blocks) == first[: len(hit.blocks)]
    assert hit.revived == len(hit.blocks)


def test_matching_changes_nothing() -> None:
    kv = manager()
    run(kv, "a", range(9))
    table = kv.open("b", list(range(9)))
    before = kv.snapshot()
    assert kv.match(table).tokens == 8
    assert kv.snapshot() == before


def test_a_live_owner_shares_and_a_hit_revives() -> None:
    kv = manager()
    first = begin(kv, "a", range(9))
    second = begin(kv, "b", [*range(8), 70, 71])
    assert (first.ids, second.ids) == ((1, 2, 3), (1, 2, 4))
    assert kv.snapshot().owners_of(1) == ("a", "b")
    end(kv, first)
    assert order(kv) == [5, 6, 7, 8, 3]
    end(kv, second)
    assert order(kv) == [5, 6, 7, 8, 3, 4, 2, 1]
    assert begin(kv, "c", [*range(4), 80]).ids == (1, 5)
    assert order(kv) == [6, 7, 8, 3, 4, 2]


def test_only_whole_blocks_and_only_from_the_start_hit() -> None:
    kv = manager()
    run(kv, "a", range(12))
    assert kv.match(kv.open("b", [*range(7), 99, 8, 9, 10, 11, 12])).tokens == 4
    assert kv.match(kv.open("c", [99, *range(1, 12)])).tokens == 0
    assert kv.match(kv.open("d", [*range(4, 12), 1])).tokens == 0


def test_with_caching_off_nothing_is_found_or_kept() -> None:
    kv = manager(enable_prefix_caching=False)
    run(kv, "a", range(9))
    assert findable(kv) == []
    assert begin(kv, "b", range(9)).ids == (4, 5, 6)
    assert kv.snapshot().hits == {}


def test_a_bypass_reads_nothing_and_is_found_by_others() -> None:
    kv = manager()
    run(kv, "a", range(5))
    table = begin(kv, "b", range(5), skip_lookup=True)
    assert table.ids == (3, 4)
    end(kv, table)
    assert begin(kv, "c", range(5)).ids[0] == 1  # the oldest of the two


def test_the_oldest_of_equal_blocks_is_found() -> None:
    kv = manager()
    kv.begin_step()
    tables = [kv.open(name, list(range(4))) for name in "ab"]
    for table in tables:
        kv.admit(table, kv.match(table), 4)
    assert [table.ids for table in tables] == [(1,), (2,)]
    assert begin(kv, "c", range(5)).ids == (1, 3)
    end(kv, tables[0])
    assert begin(kv, "d", range(5)).ids == (1, 4)


def test_a_block_filled_by_generation_is_found() -> None:
    kv = manager()
    table = begin(kv, "a", [1, 2])
    for token in (3, 4, 5):
        grow(kv, table, token)
    assert findable(kv) == [1]
    assert kv.match(kv.open("b", [1, 2, 3, 4, 9])).tokens == 4


def test_a_block_is_found_in_the_step_that_plans_to_fill_it() -> None:
    kv = manager()
    kv.begin_step()
    first, second = kv.open("a", [1, 2, 3, 4, 5]), kv.open("b", [1, 2, 3, 4, 6])
    kv.admit(first, kv.match(first), 5)
    kv.admit(second, kv.match(second), 5)
    assert (first.ids, second.ids) == ((1, 2), (1, 3))


def test_a_block_is_not_found_before_its_last_token_is_known() -> None:
    """One step ahead, the slot of a token is planned before the token is seen."""
    kv = manager()
    table = begin(kv, "a", [1, 2, 3])
    kv.begin_step()
    kv.extend(table, 4)
    assert findable(kv) == []
    table.tokens.append(4)
    kv.publish(table)
    assert findable(kv) == [1]


def test_hits_are_compared_token_by_token_when_asked() -> None:
    kv = manager(verify_hits=True)
    run(kv, "a", range(5))
    block = kv.pool.blocks[1]
    assert block.content is not None
    block.content = Content(block.content.identity, block.content.parent, (9, 9, 9, 9), b"", block.content.plain)
    table = kv.open("b", list(range(5)))
    with pytest.raises(InvariantViolation, match=r"'b' on block 1 holds other tokens"):
        kv.admit(table, kv.match(table), 5)


# -- room ----------------------------------------------------------------------------------------------


def test_revived_blocks_count_as_needed() -> None:
    kv = manager(num_blocks=5)
    run(kv, "a", range(9))
    table = kv.open("b", [*range(8), *range(40, 48)])
    hit = kv.match(table)
    assert (hit.tokens, hit.revived) == (8, 2)
    assert kv.fits(hit, 16, spare=0)
    assert not kv.fits(hit, 17, spare=0)
    assert not kv.fits(hit, 16, spare=1)


def test_shared_blocks_of_a_live_owner_cost_nothing() -> None:
    kv = manager(num_blocks=5)
    begin(kv, "a", range(9))
    table = kv.open("b", [*range(8), 40])
    hit = kv.match(table)
    assert (hit.tokens, hit.revived) == (8, 0)
    assert kv.fits(hit, 12, spare=0)
    assert not kv.fits(hit, 13, spare=0)


# -- eviction ------------------------------------------------------------------------------------------


def test_taking_evicts_the_deepest_block_of_the_longest_returned_chain() -> None:
    kv = manager(num_blocks=6)
    run(kv, "a", range(8))
    run(kv, "b", range(20, 28))
    assert order(kv) == [5, 2, 1, 4, 3]
    table = begin(kv, "c", range(40, 48))
    assert table.ids == (5, 2)
    assert findable(kv) == [1, 2, 3, 4, 5]
    assert kv.match(kv.open("d", list(range(9)))).tokens == 4
    assert kv.snapshot().evictions == 1
    account(kv)


# -- giving back ---------------------------------------------------------------------------------------


def test_a_table_returns_last_block_first() -> None:
    kv = manager(enable_prefix_caching=False)
    table = begin(kv, "a", range(12))
    end(kv, table)
    assert order(kv) == [4, 5, 6, 7, 8, 3, 2, 1]


def test_preemption_gives_up_everything_but_the_tokens() -> None:
    kv = manager()
    table, other = begin(kv, "a", range(9)), begin(kv, "b", range(50, 54))
    kv.begin_step()
    kv.preempt(table, other, None)
    view = kv.snapshot().request("a")
    assert (view.status, view.blocks, view.slots, view.tokens, view.preemptions) == ("preempted", (), 0, 9, 1)
    assert order(kv) == [5, 6, 7, 8, 3, 2, 1]
    hit = kv.match(table)
    assert (hit.tokens, hit.revived) == (8, 2)
    kv.admit(table, hit, 9)
    assert table.ids == (1, 2, 5)
    assert kv.snapshot().request("a").cached_tokens == 0  # of the first admission
    account(kv)


def test_what_a_victim_published_in_this_very_step_is_withdrawn() -> None:
    kv = manager()
    table, other = begin(kv, "a", range(12), slots=6), begin(kv, "b", range(50, 54))
    assert findable(kv) == [1, 3]
    kv.begin_step()
    kv.extend(table, 12)
    assert findable(kv) == [1, 2, 3, 4]
    kv.preempt(table, other, None)
    assert findable(kv) == [1, 3]  # blocks 2 and 4 will not be written
    assert order(kv) == [5, 6, 7, 8, 4, 2, 1]
    assert kv.match(table).tokens == 4
    account(kv)


def test_what_a_victim_published_in_an_earlier_step_stays() -> None:
    kv = manager()
    table, other = begin(kv, "a", range(8)), begin(kv, "b", range(50, 54))
    kv.begin_step()
    kv.preempt(table, other, None)
    assert findable(kv) == [1, 2, 3]


def fenced_abort(kv: KVManager) -> None:
    """Request "a" leaves while step 2 writes tokens 5 to 9 of its 12, in blocks 2 and 3."""
    table = begin(kv, "a", range(12), slots=5)
    kv.begin_step()
    kv.extend(table, 10)
    kv.launch(["a"], (5,))
    kv.close(table, "abort", Writing(2, 5, 10))


def test_blocks_that_a_launched_step_writes_stay_fenced() -> None:
    kv = manager()
    fenced_abort(kv)
    pool = kv.snapshot().pool
    assert pool.states[1:5] == ("cached", "fenced", "fenced", "free")
    assert pool.fences[:4] == (0, 0, 2, 2)
    assert (pool.held, pool.taken, pool.returned) == (0, 3, 3)
    assert order(kv) == [4, 5, 6, 7, 8, 1]
    kv.commit(2, [])
    assert order(kv) == [4, 5, 6, 7, 8, 3, 2, 1]
    assert kv.journal.fold() == kv.snapshot()


def test_a_fenced_block_is_not_findable() -> None:
    """It would come back behind its parents, and outlive them there."""
    kv = manager()
    fenced_abort(kv)
    assert findable(kv) == [1]
    kv.commit(2, [])
    assert findable(kv) == [1]
    assert kv.match(kv.open("b", list(range(12)))).tokens == 4
    account(kv)


def test_fenced_blocks_are_no_room() -> None:
    kv = manager(num_blocks=4)
    fenced_abort(kv)
    table = kv.open("b", list(range(50, 55)))
    assert not kv.fits(kv.match(table), 5, spare=0)
    kv.commit(2, [])
    assert kv.fits(kv.match(table), 5, spare=0)


def test_the_last_owner_of_a_block_under_writing_leaves_it_fenced() -> None:
    """The writer has left already; the one who shared its block in the same step leaves after it."""
    kv = manager()
    kv.begin_step()
    writer, sharer = kv.open("a", [1, 2, 3, 4, 5]), kv.open("b", [1, 2, 3, 4, 6])
    kv.admit(writer, kv.match(writer), 5)
    kv.admit(sharer, kv.match(sharer), 5)
    kv.launch(["a", "b"], (5, 1))
    kv.close(writer, "abort", Writing(1, 0, 5))
    assert kv.snapshot().pool.states[1:4] == ("held", "fenced", "held")
    kv.close(sharer, "abort", Writing(1, 4, 5))
    assert kv.snapshot().pool.states[1:4] == ("fenced", "fenced", "fenced")
    kv.commit(1, [])
    assert kv.snapshot().pool.reclaimable == 8
    account(kv)


# -- asking --------------------------------------------------------------------------------------------


def test_names_are_matched_exactly() -> None:
    kv = manager()
    begin(kv, "R1", range(4))
    begin(kv, "R1-b", range(20, 28))
    assert kv.table("R1") == (1,)
    assert kv.table("R1-b") == (2, 3)
    with pytest.raises(UnknownRequest, match=r"no request is named 'R'; names are matched exactly \(live: R1, R1-b\)"):
        kv.table("R")


def test_nobody_live_is_said_so() -> None:
    with pytest.raises(UnknownRequest, match=r"\(live: none\)"):
        manager().table("a")


def test_a_finished_request_tells_its_step_and_last_table() -> None:
    kv = manager()
    run(kv, "a", range(5))
    with pytest.raises(FinishedRequest, match=r"'a' finished in step 1; its last table was \(1, 2\)") as caught:
        kv.table("a")
    assert (caught.value.step, caught.value.table) == (1, (1, 2))


def test_the_oldest_finished_request_is_forgotten_in_the_end() -> None:
    kv = manager()
    for number in range(REMEMBERED_REQUESTS + 1):
        end(kv, kv.open(f"r{number}", [1]))
    with pytest.raises(FinishedRequest):
        kv.table("r1")
    with pytest.raises(UnknownRequest, match="no request is named 'r0'"):
        kv.table("r0")
