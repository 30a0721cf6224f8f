"""A request aborted while its prompt is computed in chunks: nothing of it goes on, and nobody else notices.

Reported in sglang-jax#984 and #1471, sglang#34149 and #34153, vllm#18485 and #9629.
"""

from __future__ import annotations

import pytest

from model_free import Bench

PROMPT = range(100, 140)
MOMENTS = ["before step 1", *(f"after step {number}" for number in range(1, 5)), "with the last chunk", "after a token"]


def bring_to(bench: Bench, moment: str) -> None:
    """Drive until ``moment`` of request "long"."""
    table = bench.scheduler.waiting.head().table
    if moment == "with the last chunk":  # launched, and its result not taken
        while table.slots < len(PROMPT):
            while bench.scheduler.launched:
                bench.collect()
            bench.launch()
    elif moment == "after a token":
        while len(table.tokens) == len(PROMPT):
            bench.step()
    elif moment.startswith("after step"):
        for _ in range(int(moment[-1])):
            bench.step()


@pytest.mark.parametrize("moment", MOMENTS)
@pytest.mark.parametrize("asynchronous", [False, True])
def test_nothing_goes_on_after_the_abort(moment: str, asynchronous: bool) -> None:
    bench = Bench(num_blocks=21, max_num_batched_tokens=8, asynchronous=asynchronous)
    survivor = bench.add("survivor", range(4), 20)
    bench.step()
    long = bench.add("long", PROMPT, 4)
    bring_to(bench, moment)
    bench.abort("long")
    plans, emitted = len(bench.memory.plans), len(bench.outputs[long.handle])
    assert emitted == (moment == "after a token")

    bench.step()
    pool = bench.snapshot.pool  # one step later every block of it is reclaimable, fences included
    assert pool.held == len(bench.table("survivor"))
    assert pool.fenced == 0
    bench.drain()
    assert all(long.handle not in plan.handles for plan in bench.memory.plans[plans:])
    assert len(bench.outputs[long.handle]) == emitted
    assert bench.outputs[survivor.handle] == bench.expected[survivor.handle]

    again = bench.run("long", PROMPT, 4)
    assert bench.outputs[again.handle] == bench.expected[again.handle]
