"""The token budget of a step in which somebody is pre-empted."""

from __future__ import annotations

from model_free import Bench


def test_a_victim_s_tokens_go_to_whoever_is_planned_after_it() -> None:
    bench = Bench(num_blocks=5, enable_prefix_caching=False, scheduling_policy="priority", max_num_batched_tokens=4)
    bench.add("victim", [1, 2], 9, priority=5)
    bench.step()
    bench.add("decoding", [3, 4, 5], 9)
    bench.step()
    prompt = bench.add("prompt", range(10, 18), 1)
    bench.step()
    assert bench.memory.plans[-1].counts == (1, 1, 2)
    bench.step()  # the victim took the last block and its token, "decoding" needs one too and may have both
    assert bench.snapshot.request("victim").status == "preempted"
    assert (bench.memory.plans[-1].counts, prompt.table.slots) == ((1, 3), 5)
    bench.drain()
