"""Of one chain the deepest block is evicted first: giving up an earlier one would strand those behind it.

Reported in llm-d-inference-sim#704, LMCache#443, vllm#2614 and #33710.
"""

from __future__ import annotations

import pytest

from model_free import Bench
from pellucid.kv import REUSE_POLICIES, acts


@pytest.mark.parametrize("policy", REUSE_POLICIES)
@pytest.mark.parametrize("asynchronous", [False, True])
def test_the_deepest_block_goes_first_two_hundred_times(policy: str, asynchronous: bool) -> None:
    for _ in range(200):
        bench = Bench(num_blocks=5, reuse_policy=policy, asynchronous=asynchronous)
        bench.add("P1", range(1, 13), 1)
        bench.step()
        assert bench.table("P1") == (1, 2, 3) if asynchronous else bench.snapshot.pool.cached == 3
        bench.drain()
        bench.run("P2", range(101, 106))
        evicted = [act.blocks for act in bench.kv.journal if isinstance(act, acts.Evict)]
        assert evicted == [(3,)]
        taken = [act.blocks for act in bench.kv.journal if isinstance(act, acts.Take)]
        assert taken == [(1, 2, 3), (4, 3)]
        bench.run("P3", [*range(1, 9), *range(201, 205)])
        assert bench.hit("P3") == 8


@pytest.mark.parametrize("policy", REUSE_POLICIES)
@pytest.mark.parametrize("moment", range(1, 6))
def test_an_abort_one_step_ahead_strands_nothing(policy: str, moment: int) -> None:
    """The blocks a launched step writes come back later than their parents; they must not outlive them (`Bench`)."""
    bench = Bench(num_blocks=9, reuse_policy=policy, asynchronous=True, max_num_batched_tokens=8)
    bench.add("long", range(30), 2)
    for _ in range(moment):
        bench.step()
    if bench.core.has_unfinished_requests() and bench.scheduler.running:
        bench.abort("long")
    bench.drain()
    for number in range(4):
        bench.run(f"r{number}", range(100 + 20 * number, 109 + 20 * number))
        bench.run(f"again {number}", range(30))
