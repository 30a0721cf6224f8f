"""The prefix index: oldest first, duplicates kept, namespaces told apart."""

from __future__ import annotations

from pellucid.kv.block import Block, Content
from pellucid.kv.prefix import PrefixIndex


def content(identity: bytes, space: bytes = b"", plain: bytes | None = None) -> Content:
    return Content(identity, b"parent", (1, 2), space, identity if plain is None else plain)


def test_an_unknown_identity_is_not_found() -> None:
    index = PrefixIndex()
    assert index.find(b"x") is None
    assert b"x" not in index
    assert len(index) == 0


def test_the_oldest_duplicate_is_found_until_it_goes() -> None:
    index, (first, second, third) = PrefixIndex(), (Block(1), Block(2), Block(3))
    for block in (second, first, third):
        index.add(block, content(b"x"))
    assert index.find(b"x") is second
    index.discard(first, content(b"x"))
    assert index.find(b"x") is second
    index.discard(second, content(b"x"))
    assert index.find(b"x") is third
    assert len(index) == 1
    index.discard(third, content(b"x"))
    assert index.find(b"x") is None
    assert b"x" not in index
    assert list(index) == []


def test_a_block_that_returns_to_the_index_is_the_youngest() -> None:
    index, first, second = PrefixIndex(), Block(1), Block(2)
    index.add(first, content(b"x"))
    index.add(second, content(b"x"))
    index.discard(first, content(b"x"))
    index.add(first, content(b"x"))
    assert index.find(b"x") is second
    assert list(index) == [(b"x", [second, first])]


def test_the_same_tokens_elsewhere_are_recognised() -> None:
    index, salted, plain = PrefixIndex(), content(b"s", b"salt", b"p"), content(b"p")
    assert not index.elsewhere(b"p", b"")
    index.add(Block(1), salted)
    index.add(Block(2), salted)
    assert index.elsewhere(b"p", b"")
    assert index.elsewhere(b"p", b"other salt")
    assert not index.elsewhere(b"p", b"salt")  # the own namespace is not elsewhere
    third = Block(3)
    index.add(third, plain)
    assert index.elsewhere(b"p", b"salt")
    index.discard(third, plain)
    assert not index.elsewhere(b"p", b"salt")


def test_no_namespace_is_not_elsewhere_for_those_who_have_none() -> None:
    index = PrefixIndex()
    index.add(Block(1), content(b"p"))
    assert index.elsewhere(b"p", b"salt")
    assert not index.elsewhere(b"p", b"")


def test_elsewhere_ends_with_the_last_block_of_that_namespace() -> None:
    index, salted = PrefixIndex(), content(b"s", b"salt", b"p")
    first, second = Block(1), Block(2)
    index.add(first, salted)
    index.add(second, salted)
    index.discard(first, salted)
    assert index.elsewhere(b"p", b"")
    index.discard(second, salted)
    assert not index.elsewhere(b"p", b"")
