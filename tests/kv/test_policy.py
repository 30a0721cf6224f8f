"""The three orders of re-use: as documented, and against plain lists."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from model_free import examples
from pellucid.errors import ConfigError
from pellucid.kv import REUSE_POLICIES
from pellucid.kv.block import Block, Content
from pellucid.kv.policy import ReusePolicy, reuse_policy

SOME = Content(b"identity", b"parent", (1,), b"", b"identity")


def pool(name: str, count: int) -> tuple[ReusePolicy, dict[int, Block]]:
    blocks = {i: Block(i) for i in range(1, count + 1)}
    policy = reuse_policy(name)
    policy.put(list(blocks.values()))
    return policy, blocks


def order(policy: ReusePolicy) -> list[int]:
    return [block.id for block in policy]


def give_back(policy: ReusePolicy, table: list[Block], full: int) -> None:
    """Return a table, last block first, of which the first ``full`` blocks have content."""
    for block in table[:full]:
        block.content = SOME
    policy.put(table[::-1])


def test_an_unknown_policy_is_named_with_the_known_ones() -> None:
    with pytest.raises(ConfigError, match=r"'lru' is not known; choose one of free-first, vllm-0\.23, vllm-0\.24"):
        reuse_policy("lru")


@pytest.mark.parametrize("name", REUSE_POLICIES)
def test_first_use_is_ascending(name: str) -> None:
    policy, _ = pool(name, 6)
    assert [block.id for block in policy.take(4)] == [1, 2, 3, 4]
    assert (order(policy), len(policy)) == ([5, 6], 2)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("free-first", [7, 8, 3, 6, 2, 1, 5, 4]),  # never used, then free by return; then cached by return
        ("vllm-0.23", [7, 8, 3, 2, 1, 6, 5, 4]),  # one queue, everything to its back
        ("vllm-0.24", [6, 3, 7, 8, 2, 1, 5, 4]),  # free blocks in front, the last returned first
    ],
)
def test_two_tables_with_a_partial_tail_each(name: str, expected: list[int]) -> None:
    policy, _ = pool(name, 8)
    first, second = policy.take(3), policy.take(3)
    give_back(policy, first, full=2)
    give_back(policy, second, full=2)
    assert order(policy) == expected


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("free-first", [*range(67, 80), *range(44, 30, -1)]),
        ("vllm-0.23", [*range(67, 80), *range(44, 30, -1)]),
        ("vllm-0.24", [*range(44, 22, -1), *range(67, 72)]),
    ],
)
def test_the_hole_of_the_founding_experiment(name: str, expected: list[int]) -> None:
    """Caching off: 79 blocks, three tables of 22, the middle one returned; then 27 are taken."""
    policy, _ = pool(name, 79)
    tables = [policy.take(22) for _ in range(3)]
    give_back(policy, tables[1], full=0)
    assert sorted(block.id for block in tables[1]) == list(range(23, 45))
    assert [block.id for block in policy.take(27)] == expected


def test_free_first_gives_up_no_cached_block_while_a_free_one_is_left() -> None:
    policy, _ = pool("free-first", 6)
    give_back(policy, policy.take(3), full=3)
    assert [block.content for block in policy.take(3)] == [None] * 3
    assert [block.id for block in policy.take(2)] == [3, 2]  # deepest first


class PlainFreeFirst:
    def __init__(self, blocks: list[Block]) -> None:
        self.free, self.cached = list(blocks), list[Block]()

    def all(self) -> list[Block]:
        return self.free + self.cached

    def put(self, blocks: list[Block]) -> None:
        self.free += [block for block in blocks if block.content is None]
        self.cached += [block for block in blocks if block.content is not None]

    def drop(self, block: Block) -> None:
        (self.free if block in self.free else self.cached).remove(block)


class PlainQueue:
    def __init__(self, blocks: list[Block]) -> None:
        self.queue = list(blocks)

    def all(self) -> list[Block]:
        return self.queue

    def put(self, blocks: list[Block]) -> None:
        self.queue = self.queue + blocks

    def drop(self, block: Block) -> None:
        self.queue.remove(block)


class PlainSplitQueue(PlainQueue):
    def put(self, blocks: list[Block]) -> None:
        free = [block for block in blocks if block.content is None]
        self.queue = free + self.queue + [block for block in blocks if block.content is not None]


PLAIN = {"free-first": PlainFreeFirst, "vllm-0.23": PlainQueue, "vllm-0.24": PlainSplitQueue}


@pytest.mark.parametrize("name", REUSE_POLICIES)
@examples(80)
@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("take"), st.integers(0, 6)),
            st.tuples(st.just("put"), st.lists(st.booleans(), max_size=5)),
            st.tuples(st.just("remove"), st.integers(0, 9)),
        ),
        max_size=30,
    )
)
def test_any_sequence_of_puts_takes_and_removals(name: str, operations: list[tuple[str, int | list[bool]]]) -> None:
    policy, blocks = pool(name, 9)
    plain = PLAIN[name](list(blocks.values()))
    out: list[Block] = []
    for operation, argument in operations:
        if isinstance(argument, list):
            returned, out = out[: len(argument)], out[len(argument) :]
            for block, keeps in zip(returned, argument, strict=False):
                block.content = SOME if keeps else None
            policy.put(returned)
            plain.put(returned)
        elif operation == "take":
            expected = plain.all()[:argument]
            taken = policy.take(len(expected))
            assert taken == expected
            for block in taken:
                plain.drop(block)
            out += taken
        elif plain.all():
            block = plain.all()[argument % len(plain.all())]
            policy.remove(block)
            plain.drop(block)
            out.append(block)
        assert list(policy) == plain.all()
        assert len(policy) == len(plain.all())
