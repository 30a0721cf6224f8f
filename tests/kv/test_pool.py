"""Owners, fences and findable contents on a pool of a few blocks, by exact ids."""

from __future__ import annotations

import pytest

from pellucid.errors import ConfigError
from pellucid.kv.block import RESERVED_BLOCK, Block, BlockState, Content
from pellucid.kv.pool import BlockPool


def content(number: int, parent: int = 0) -> Content:
    key = bytes([number])
    return Content(key, bytes([parent]), (number,), b"", key)


def ids(blocks: list[Block]) -> list[int]:
    return [block.id for block in blocks]


def order(pool: BlockPool) -> list[int]:
    return [block.id for block in pool.reclaimable]


def states(pool: BlockPool) -> list[str]:
    return [block.state for block in pool.blocks]


@pytest.mark.parametrize("count", [-1, 0, 1])
def test_a_pool_of_the_reserved_block_alone_is_refused(count: int) -> None:
    with pytest.raises(ConfigError, match=rf"a pool of {count} block\(s\).*at least 2"):
        BlockPool(count)


def test_block_0_is_never_handed_out() -> None:
    pool = BlockPool(4)
    assert pool.usable == 3
    assert ids(pool.take(3)) == [1, 2, 3]
    assert order(pool) == []
    assert states(pool) == ["reserved", "held", "held", "held"]
    assert pool.blocks[RESERVED_BLOCK].owners == 0


def test_take_and_give_back_are_counted() -> None:
    pool = BlockPool(6)
    table = pool.take(3)
    pool.give_back(table[::-1])
    assert order(pool) == [4, 5, 3, 2, 1]
    assert (pool.taken, pool.returned) == (3, 3)


def test_a_shared_block_stays_held_until_its_last_owner_leaves() -> None:
    pool = BlockPool(4)
    (block,) = pool.take(1)
    pool.share([block])
    assert (block.owners, pool.taken) == (2, 2)
    pool.give_back([block])
    assert (block.owners, block.state) == (1, BlockState.HELD)
    assert order(pool) == [2, 3]
    pool.give_back([block])
    assert (block.owners, block.state) == (0, BlockState.FREE)
    assert order(pool) == [2, 3, 1]
    assert pool.returned == 2


def test_sharing_revives_a_cached_block_from_the_middle() -> None:
    pool = BlockPool(5)
    table = pool.take(3)
    for number, block in enumerate(table, start=1):
        pool.publish(block, content(number))
    pool.give_back(table[::-1])
    assert order(pool) == [4, 3, 2, 1]
    assert states(pool) == ["reserved", "cached", "cached", "cached", "free"]
    pool.share([table[1]])
    assert order(pool) == [4, 3, 1]
    assert table[1].owners == 1
    assert pool.index.find(bytes([2])) is table[1]


def test_a_block_is_found_only_while_it_is_published() -> None:
    pool = BlockPool(3)
    table = pool.take(2)
    pool.publish(table[0], content(7))
    assert pool.index.find(bytes([7])) is table[0]
    assert table[1].content is None
    pool.unpublish([table[0]])
    assert pool.index.find(bytes([7])) is None
    assert table[0].content is None
    assert table[0].state is BlockState.HELD


def test_written_blocks_wait_behind_the_fence() -> None:
    pool = BlockPool(7)
    table = pool.take(4)
    held_back = pool.give_back(table[::-1], fence=9, written=frozenset({3, 4}))
    assert ids(held_back) == [4, 3]
    assert states(pool)[1:5] == ["free", "free", "fenced", "fenced"]
    assert [block.fence for block in pool.blocks] == [0, 0, 0, 9, 9, 0, 0]
    assert order(pool) == [5, 6, 2, 1]
    assert (pool.taken, pool.returned) == (4, 4)  # a fenced block counts as returned
    assert pool.lift_fence(8) == []
    assert ids(pool.lift_fence(9)) == [4, 3]
    assert order(pool) == [5, 6, 2, 1, 4, 3]
    assert states(pool)[3:5] == ["free", "free"]
    assert pool.lift_fence(9) == []


def test_a_written_block_that_another_still_owns_is_held_until_that_one_leaves_and_then_fenced() -> None:
    pool = BlockPool(4)
    (block,) = pool.take(1)
    pool.share([block])
    assert pool.give_back([block], fence=3, written=frozenset({1})) == []
    assert block.state is BlockState.HELD
    assert pool.give_back([block]) == [block]
    assert block.state is BlockState.FENCED
    assert order(pool) == [2, 3]
    assert pool.lift_fence(3) == [block]
    assert order(pool) == [2, 3, 1]


def test_a_fence_that_falls_while_the_block_is_held_leaves_it_held() -> None:
    pool = BlockPool(4)
    (block,) = pool.take(1)
    pool.share([block])
    pool.give_back([block], fence=3, written=frozenset({1}))
    pool.lift_fence(3)
    assert block.state is BlockState.HELD
    assert order(pool) == [2, 3]
    assert pool.give_back([block]) == []
    assert order(pool) == [2, 3, 1]


def test_two_requests_behind_one_fence() -> None:
    pool = BlockPool(5)
    first, second = pool.take(2), pool.take(2)
    pool.give_back(second[::-1], fence=2, written=frozenset({4}))
    pool.give_back(first[::-1], fence=2, written=frozenset({1, 2}))
    assert order(pool) == [3]
    assert ids(pool.lift_fence(2)) == [4, 2, 1]
    assert order(pool) == [3, 4, 2, 1]
