"""Requests with other salts or adapters share no block, at any time.

Reported in vllm#16016, #17045, #39082, #53347, #3264, #30931, #27211 and #42495, xllm#2047, llm-d-kv-cache#243,
llm-d-router#1389 and LMCache#2961. Each check comes in a pair: the same identity must hit, or caching is simply off.
"""

from __future__ import annotations

from itertools import permutations, product

import pytest

from model_free import Bench

IDENTITIES = {
    "plain": {},
    "salt s1": {"salt": "s1"},
    "salt s2": {"salt": "s2"},
    "empty salt": {"salt": ""},
    "adapter p": {"adapter": ("p", "1")},
    "adapter q": {"adapter": ("q", "1")},
    "p reloaded": {"adapter": ("p", "2")},
    "salt and adapter": {"salt": "s1", "adapter": ("p", "1")},
}
PAIRS = list(permutations(IDENTITIES, 2))
PROMPT = range(1, 17)


@pytest.mark.parametrize(("mine", "yours"), PAIRS, ids=lambda name: name)
def test_one_identity_hits_and_the_other_does_not(mine: str, yours: str) -> None:
    bench = Bench(num_blocks=30)
    bench.run("first", PROMPT, **IDENTITIES[mine])
    bench.run("same", PROMPT, **IDENTITIES[mine])
    assert bench.hit("same") == 12
    bench.run("other", PROMPT, **IDENTITIES[yours])
    assert bench.hit("other") == 0
    assert "there under another salt or adapter" in str(bench.kv.explain("other"))
    bench.run("other again", PROMPT, **IDENTITIES[yours])
    assert bench.hit("other again") == 12


@pytest.mark.parametrize("asynchronous", [False, True])
def test_side_by_side_nothing_is_shared_across_identities(asynchronous: bool) -> None:
    bench = Bench(num_blocks=100, asynchronous=asynchronous)
    for (name, options), copy in product(IDENTITIES.items(), (1, 2)):
        bench.add(f"{name} {copy}", PROMPT, 3, **options)
    bench.step()
    for mine, yours in PAIRS:
        assert not set(bench.table(f"{mine} 1")) & set(bench.table(f"{yours} 1"))
    for name in IDENTITIES:
        assert bench.table(f"{name} 1")[:3] == bench.table(f"{name} 2")[:3]
    bench.drain()
    blocks: dict[bytes, set[int]] = {}
    for block in bench.kv.pool.blocks:
        if block.content is not None:
            blocks.setdefault(block.content.namespace, set()).add(block.id)
    assert len(blocks) == len(IDENTITIES)


def test_a_reload_under_the_same_name_finds_nothing_of_the_old_weights() -> None:
    bench = Bench(num_blocks=30)
    for version in ("1", "2", "1"):
        bench.run(f"first {version}", PROMPT, adapter=("p", version))
        bench.run(f"second {version}", PROMPT, adapter=("p", version))
        assert bench.hit(f"second {version}") == 12
    assert bench.hit("first 2") == 0
    assert bench.hit("first 1") == 12  # the old version again: its blocks are still there
