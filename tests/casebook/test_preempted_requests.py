"""A pre-empted request comes back with the same output: no token twice, none lost, none drawn anew.

Reported in vllm-oxide#40, vllm-gaudi#524 and #541, FastDeploy#3080, nano-vllm#211 and #233, vllm#24926, #16832 and
#5349, onnxruntime-genai#2418.
"""

from __future__ import annotations

from itertools import product

import pytest

from model_free import Bench
from pellucid.engine.sequence import Sequence
from pellucid.kv import REUSE_POLICIES

MODES = [
    {"asynchronous": asynchronous, "enable_prefix_caching": caching, "max_num_batched_tokens": budget, **policy}
    for asynchronous, caching, budget in product([False, True], [False, True], [4, 64])
    for policy in ({"scheduling_policy": "fcfs"}, {"scheduling_policy": "priority"})
]


def three(num_blocks: int, prompts: str, **options: object) -> tuple[Bench, list[Sequence]]:
    """Three requests of 8 + 16 tokens, each of which comes to need 6 blocks."""
    bench = Bench(num_blocks=num_blocks, **options)
    starts = (100, 200, 300) if prompts == "own" else (100, 100, 100)
    sequences = [bench.add(f"r{i}", range(start, start + 8), 16, priority=-i) for i, start in enumerate(starts)]
    bench.drain()
    return bench, sequences


@pytest.mark.parametrize("options", MODES, ids=lambda mode: "-".join(str(value) for value in mode.values()))
@pytest.mark.parametrize("prompts", ["own", "common"])
def test_a_small_pool_gives_the_outputs_of_a_large_one(prompts: str, options: dict) -> None:
    small, pressed = three(11, prompts, **options)
    large, unpressed = three(101, prompts, **options)
    assert sum(sequence.table.preemptions for sequence in pressed) > 0
    assert sum(sequence.table.preemptions for sequence in unpressed) == 0
    for mine, yours in zip(pressed, unpressed, strict=True):
        assert mine.output == yours.output == small.expected[mine.handle]
        assert small.outputs[mine.handle] == large.outputs[yours.handle] == mine.output
        assert (mine.finish_reason, len(mine.output)) == ("length", 16)


@pytest.mark.parametrize("asynchronous", [False, True])
@pytest.mark.parametrize("policy", REUSE_POLICIES)
def test_a_request_preempted_twice(policy: str, asynchronous: bool) -> None:
    bench, sequences = three(9, "own", reuse_policy=policy, asynchronous=asynchronous)
    assert max(sequence.table.preemptions for sequence in sequences) >= 2
    for sequence in sequences:
        assert bench.outputs[sequence.handle] == bench.expected[sequence.handle]


def test_a_resumed_request_may_hit_its_own_blocks() -> None:
    bench, sequences = three(11, "own")
    resumed = bench.snapshot.hits["resume"]  # type: ignore[index]
    assert resumed.requests == sum(sequence.table.preemptions for sequence in sequences)
    assert 0 < resumed.hit < resumed.asked
    assert bench.snapshot.hits["first"].hit == 0  # type: ignore[index]


@pytest.mark.parametrize("asynchronous", [False, True])
def test_a_request_stopped_by_a_token_that_was_under_way_when_it_was_preempted(asynchronous: bool) -> None:
    """It ends while it waits, and its name and blocks are free."""
    for stops_at in range(1, 12):
        bench = Bench(num_blocks=5, asynchronous=asynchronous, eos_token_ids=(7,))
        bench.add("a", range(100, 104), 12)
        victim = bench.add("b", range(200, 204), 12, output=[*range(20, 20 + stops_at - 1), 7])
        bench.drain()
        assert (victim.finish_reason, len(victim.output)) == ("stop", stops_at)
        assert bench.outputs[victim.handle] == bench.expected[victim.handle]
