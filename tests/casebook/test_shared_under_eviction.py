"""Eviction takes only what nobody owns, however hard the pool is pressed.

Reported in atlas#373, vmlx#68, vllm#42571 (PR #42612), unified-cache-management#1053 and MinivLLM#84.
"""

from __future__ import annotations

import pytest

from model_free import Bench
from pellucid.kv import REUSE_POLICIES


@pytest.mark.parametrize("asynchronous", [False, True])
@pytest.mark.parametrize("policy", REUSE_POLICIES)
def test_a_shared_prefix_outlives_one_owner_and_thirty_strangers(policy: str, asynchronous: bool) -> None:
    bench = Bench(num_blocks=13, reuse_policy=policy, asynchronous=asynchronous)
    x = bench.add("X", range(17), 2)
    y = bench.add("Y", [*range(16), 99], 21)
    bench.step()
    shared = bench.table("X")[:4]
    assert bench.table("Y")[:4] == shared
    assert [bench.snapshot.pool.owners[block] for block in shared] == [2] * 4
    strangers = [bench.add(f"s{i}", range(100 + 10 * i, 105 + 10 * i), 1) for i in range(30)]
    left = False
    while y.finish_reason is None:
        bench.step()
        if y.finish_reason is not None:
            break
        assert bench.table("Y")[:4] == shared
        tables = [request for request in bench.snapshot.requests if request.name.startswith("s")]
        assert not any(set(request.blocks) & set(bench.table("Y")) for request in tables)
        if x.finish_reason is not None:
            left = True
            assert [bench.snapshot.pool.owners[block] for block in shared] == [1] * 4
    assert left
    bench.drain()
    assert bench.snapshot.evictions > 0
    for sequence in (x, y, *strangers):
        assert bench.outputs[sequence.handle] == bench.expected[sequence.handle]
    assert y.table.preemptions == 0
