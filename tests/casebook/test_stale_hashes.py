"""When a block gets new content, nothing finds it by the old one any more.

Reported in nano-vllm#163, MinivLLM#87, vllm#4761, kvcached#362 and #363. The `Bench` reads every row's KV back and
checks each hash against its tokens after every step.
"""

from __future__ import annotations

import random

import pytest

from model_free import Bench
from pellucid.kv import REUSE_POLICIES, acts
from pellucid.kv.identity import ROOT, identity


def surviving(bench: Bench, prompt: list[int]) -> int:
    """How many leading tokens of ``prompt`` the journal says are still findable, at most all but the last."""
    holds: dict[int, bytes] = {}
    for act in bench.kv.journal:
        if isinstance(act, acts.Publish):
            holds.update(zip(act.blocks, act.identities, strict=True))
        elif isinstance(act, acts.Evict | acts.Unpublish):
            for block in act.blocks:
                del holds[block]
    found, parent = 0, ROOT
    while found + 4 < len(prompt):
        parent = identity(parent, prompt[found : found + 4], b"")
        if parent not in holds.values():
            break
        found += 4
    return found


@pytest.mark.parametrize("policy", REUSE_POLICIES)
def test_a_prompt_comes_back_after_another_took_its_blocks(policy: str) -> None:
    bench = Bench(num_blocks=5, reuse_policy=policy)
    first, second = list(range(1, 10)), list(range(101, 115))
    bench.run("P1", first)
    bench.run("P2", second)
    assert bench.snapshot.evictions >= 1
    expected = surviving(bench, first)
    assert expected < 8
    again = bench.run("P1", first)
    assert bench.hit("P1") == expected
    assert bench.outputs[again.handle] == bench.expected[again.handle]


@pytest.mark.parametrize("policy", REUSE_POLICIES)
@pytest.mark.parametrize("asynchronous", [False, True])
def test_two_hundred_prompts_over_thirty_prefixes(policy: str, asynchronous: bool) -> None:
    rng = random.Random(163)
    prefixes = [[rng.randrange(50) for _ in range(rng.randrange(1, 13))] for _ in range(30)]
    bench = Bench(num_blocks=9, reuse_policy=policy, asynchronous=asynchronous)
    hits = 0
    for number in range(200):
        prompt = rng.choice(prefixes) + [rng.randrange(50) for _ in range(rng.randrange(1, 4))]
        expected = surviving(bench, prompt)
        sequence = bench.run(f"r{number}", prompt, rng.randrange(1, 4))
        assert bench.hit(sequence.name) == expected
        hits += expected
    assert hits > 0
    assert bench.snapshot.evictions > 100
