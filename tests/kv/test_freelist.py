"""The free list against a plain Python list."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from model_free import examples
from pellucid.kv.block import Block
from pellucid.kv.freelist import FreeList


def ids(blocks: FreeList) -> list[int]:
    return [block.id for block in blocks]


def filled(*block_ids: int) -> tuple[FreeList, dict[int, Block]]:
    blocks = {i: Block(i) for i in block_ids}
    free = FreeList()
    free.append(list(blocks.values()))
    return free, blocks


def test_an_empty_list_has_no_blocks() -> None:
    free = FreeList()
    assert (ids(free), len(free), free.take(0)) == ([], 0, [])
    free.append([])
    free.prepend([])
    assert ids(free) == []


def test_append_and_prepend_keep_the_given_order() -> None:
    free, _ = filled(1, 2)
    free.append([Block(3), Block(4)])
    free.prepend([Block(8), Block(9)])
    assert ids(free) == [8, 9, 1, 2, 3, 4]


def test_take_unlinks_the_front() -> None:
    free, _ = filled(1, 2, 3, 4, 5)
    assert [block.id for block in free.take(2)] == [1, 2]
    assert ids(free) == [3, 4, 5]
    assert len(free) == 3


def test_a_list_taken_empty_can_be_filled_again() -> None:
    free, _ = filled(1, 2)
    taken = free.take(2)
    assert (ids(free), len(free)) == ([], 0)
    free.append(taken[::-1])
    assert ids(free) == [2, 1]


def test_remove_from_front_middle_and_back() -> None:
    free, blocks = filled(1, 2, 3, 4, 5)
    for gone, left in ((3, [1, 2, 4, 5]), (1, [2, 4, 5]), (5, [2, 4])):
        free.remove(blocks[gone])
        assert ids(free) == left
    assert len(free) == 2


@examples(150)
@given(st.lists(st.tuples(st.sampled_from(["append", "prepend", "take", "remove"]), st.integers(0, 9)), max_size=40))
def test_any_sequence_of_operations_is_that_of_a_list(operations: list[tuple[str, int]]) -> None:
    free, plain, made = FreeList(), list[Block](), 0
    for operation, number in operations:
        if operation in ("append", "prepend"):
            new = [Block(made + i) for i in range(number % 4)]
            made += len(new)
            getattr(free, operation)(new)
            plain = plain + new if operation == "append" else new + plain
        elif operation == "take":
            count = min(number, len(plain))
            assert free.take(count) == plain[:count]
            del plain[:count]
        elif plain:
            free.remove(plain.pop(number % len(plain)))
        assert list(free) == plain
        assert len(free) == len(plain)
