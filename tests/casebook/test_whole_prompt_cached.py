"""A prompt that is cached as a whole must still compute at least one token, or there is nothing to sample from.

Reported as crashes on empty forwards in vllm#9972, #11186 and #17999, nano-vllm#144 and #199, transformers#42094 and
ax-llm#59. Ours recomputes the whole last block: a prompt of n tokens hits floor((n - 1) / B) blocks.
"""

from __future__ import annotations

import pytest

from model_free import Bench

MODES = pytest.mark.parametrize("asynchronous", [False, True])


@MODES
@pytest.mark.parametrize("length", range(1, 18))
def test_the_second_sending_hits_by_the_formula(length: int, asynchronous: bool) -> None:
    bench = Bench(num_blocks=12, asynchronous=asynchronous)
    prompt = range(11, 11 + length)
    first = bench.add("first", prompt, 3)
    bench.step()
    cold = bench.table("first")
    bench.drain()
    second = bench.add("second", prompt, 3)
    bench.step()
    warm = bench.table("second")
    hit = second.table.cached_tokens
    assert hit == (length - 1) // 4 * 4 <= length - 1
    assert warm[: hit // 4] == cold[: hit // 4]
    assert not set(warm[hit // 4 :]) & set(cold[: hit // 4])
    bench.drain()
    for sequence in (first, second):
        assert bench.outputs[sequence.handle] == bench.expected[sequence.handle]
    assert all(count > 0 for plan in bench.memory.plans for count in plan.counts)


@MODES
def test_a_live_owner_is_not_written_over(asynchronous: bool) -> None:
    """8 = 2 x B tokens: the second sender computes the last block afresh, in a block of its own."""
    bench = Bench(num_blocks=12, asynchronous=asynchronous)
    first = bench.add("first", range(11, 19), 8)
    bench.step()
    second = bench.add("second", range(11, 19), 3)
    bench.step()
    mine, yours = bench.table("first"), bench.table("second")
    assert mine[0] == yours[0]
    assert mine[1] != yours[1]
    bench.drain()
    for sequence in (first, second):
        assert bench.outputs[sequence.handle] == bench.expected[sequence.handle]
