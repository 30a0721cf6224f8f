"""Block identities: every part counts, and no two framings run together."""

from __future__ import annotations

import hashlib
from itertools import combinations

from hypothesis import assume, given
from hypothesis import strategies as st

from model_free import examples
from pellucid.kv.identity import NO_NAMESPACE, ROOT, identity, namespace

# Texts that would collide if the parts were merely joined.
PARTS = ["", "a", "s", "v", "as", "sa", "a" + "\0" * 8, "s\1\0\0\0\0\0\0\0a", "salt", "é", "\0"]
texts = st.one_of(st.sampled_from(PARTS), st.text(max_size=12))
salts = st.none() | texts
adapters = st.none() | st.tuples(texts, texts)
tokens = st.lists(st.integers(0, 2**63 - 1), min_size=1, max_size=5)


def test_no_salt_and_no_adapter_is_the_empty_namespace() -> None:
    assert namespace(None, None) == NO_NAMESPACE == b""


def test_every_pair_of_hard_namespaces_differs() -> None:
    pairs = [(salt, None) for salt in (None, *PARTS)]
    pairs += [(salt, (name, version)) for salt in (None, "", "s") for name in PARTS for version in PARTS]
    assert len({namespace(salt, adapter) for salt, adapter in pairs}) == len(pairs)


@examples(200)
@given(salts, adapters, salts, adapters)
def test_namespaces_never_collide(
    salt: str | None, adapter: tuple[str, str] | None, other_salt: str | None, other_adapter: tuple[str, str] | None
) -> None:
    same = (salt, adapter) == (other_salt, other_adapter)
    assert (namespace(salt, adapter) == namespace(other_salt, other_adapter)) == same


def test_a_lone_surrogate_is_a_salt_like_any_other() -> None:
    """JSON can carry one, so a client can send one."""
    assert len({namespace("\ud800", None), namespace("\ud801", None), namespace("?", None)}) == 3


def test_the_chain_is_sha256() -> None:
    first = identity(ROOT, (1, 2), b"")
    frame = (0).to_bytes(8, "little") + (2).to_bytes(8, "little") + b"\1" + b"\0" * 7 + b"\2" + b"\0" * 7
    assert first == hashlib.sha256(hashlib.sha256(b"pellucid.block.root").digest() + frame).digest()
    assert identity(first, (3, 4), b"") != identity(ROOT, (3, 4), b"")


def test_each_part_of_an_identity_counts() -> None:
    parent = identity(ROOT, (9,), b"")
    made = [
        identity(ROOT, (1, 2), b""),
        identity(parent, (1, 2), b""),
        identity(ROOT, (2, 1), b""),
        identity(ROOT, (1,), b""),
        identity(ROOT, (1, 2, 0), b""),
        identity(ROOT, (1, 2), namespace("s", None)),
        identity(ROOT, (1, 2), namespace("t", None)),
        identity(ROOT, (1, 2), namespace(None, ("s", "1"))),
        identity(ROOT, (1, 2), namespace(None, ("s", "2"))),
    ]
    assert all(mine != yours for mine, yours in combinations(made, 2))
    assert all(len(value) == 32 for value in made)


@examples(100)
@given(tokens, tokens, st.binary(max_size=20), st.binary(max_size=20))
def test_tokens_and_namespace_do_not_run_together(
    mine: list[int], yours: list[int], space: bytes, other: bytes
) -> None:
    assume((mine, space) != (yours, other))
    assert identity(ROOT, mine, space) != identity(ROOT, yours, other)
