"""A block table by itself: its identities grow with its tokens."""

from __future__ import annotations

from pellucid.kv.block import Block
from pellucid.kv.identity import ROOT, identity, namespace
from pellucid.kv.table import NEVER, BlockTable, RequestStatus


def test_a_new_table_waits_with_nothing() -> None:
    table = BlockTable("a", [1, 2, 3], 2, b"", skip_lookup=False)
    assert (table.status, table.ids, table.slots, table.capacity) == (RequestStatus.WAITING, (), 0, 0)
    assert (table.prompt_len, table.cached_tokens, table.preemptions, table.lookup) == (3, None, 0, None)
    assert table.publish_at == NEVER


def test_ids_are_in_table_order() -> None:
    table = BlockTable("a", [1, 2, 3], 2, b"", skip_lookup=False)
    table.blocks += [Block(9), Block(4)]
    assert table.ids == (9, 4)


def test_the_chain_follows_the_live_list_of_tokens() -> None:
    tokens = [1, 2, 3]
    table = BlockTable("a", tokens, 2, b"", skip_lookup=False)
    first = identity(ROOT, (1, 2), b"")
    assert table.chain(1) == [first]
    tokens.append(4)
    assert table.chain(2) == [first, identity(first, (3, 4), b"")]
    assert table.chain(1) == table.chain(2)  # at least so many: nothing is computed twice


def test_without_a_namespace_the_plain_chain_is_the_chain() -> None:
    table = BlockTable("a", [1, 2, 3, 4], 2, b"", skip_lookup=False)
    assert table.plain_chain(2) is table.chain(2)


def test_in_a_namespace_the_plain_chain_is_that_of_the_tokens_alone() -> None:
    space = namespace("salt", None)
    salted = BlockTable("a", [1, 2, 3, 4], 2, space, skip_lookup=False)
    plain = BlockTable("b", [1, 2, 3, 4], 2, b"", skip_lookup=False)
    assert salted.plain_chain(2) == plain.chain(2)
    assert salted.chain(2)[0] == identity(ROOT, (1, 2), space)
    assert not set(salted.chain(2)) & set(plain.chain(2))
