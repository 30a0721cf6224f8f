"""Prompts at and beyond what fits: refused with the numbers, or served; never waiting for ever.

A prompt longer than the pool but within the maximum length blocked the queue in vllm#39734 and #35541 (PR #39828),
earlier #113, #273, #1534 and #1673, dynamo#10439 and TensorRT-LLM#16802. Prompts of exactly the maximum length, and
empty ones: vllm#16445, lm-evaluation-harness#2880 and #3503, vllm#36197, #7283, #7632, #7746 and #1130.
"""

from __future__ import annotations

import pytest

from model_free import Bench
from pellucid.errors import RequestError

MODES = pytest.mark.parametrize("asynchronous", [False, True])


def eight_blocks(asynchronous: bool = False) -> Bench:
    """8 usable blocks of 4, so 32 slots; the maximum length is 64."""
    return Bench(num_blocks=9, max_model_len=64, asynchronous=asynchronous)


@MODES
def test_what_can_never_fit_is_refused_and_the_next_runs(asynchronous: bool) -> None:
    bench = eight_blocks(asynchronous)
    with pytest.raises(RequestError, match=r"'A' can never fit.*need 11 blocks.*has 8 usable"):
        bench.add("A", range(40), 2)
    c = bench.run("C", range(50, 54), 2)
    assert bench.outputs[c.handle] == bench.expected[c.handle]


@MODES
def test_the_same_while_another_runs(asynchronous: bool) -> None:
    bench = eight_blocks(asynchronous)
    other = bench.add("other", range(70, 75), 8)
    bench.step()
    with pytest.raises(RequestError, match="can never fit"):
        bench.add("A", range(40), 2)
    c = bench.add("C", range(50, 54), 2)
    bench.drain()
    for sequence in (other, c):
        assert bench.outputs[sequence.handle] == bench.expected[sequence.handle]


@MODES
def test_exactly_the_pool_fits_and_one_more_does_not(asynchronous: bool) -> None:
    """The token sampled last needs no slot."""
    bench = eight_blocks(asynchronous)
    bench.run("A", range(32), 1)
    with pytest.raises(RequestError, match=r"prompt of 33 .*need 9 blocks.*8 usable; shorten the prompt"):
        bench.add("B", range(33), 1)
    with pytest.raises(RequestError, match=r"need 9 blocks.*8 usable; lower max_tokens to 1 "):
        bench.add("B", range(32), 2)


@MODES
def test_what_does_not_fit_now_waits(asynchronous: bool) -> None:
    bench = eight_blocks(asynchronous)
    other = bench.add("other", range(70, 75), 8)
    bench.step()
    whole = bench.add("whole", range(32), 1)
    bench.step()
    assert bench.snapshot.request("whole").status == "waiting"
    bench.drain()
    for sequence in (other, whole):
        assert bench.outputs[sequence.handle] == bench.expected[sequence.handle]


@MODES
def test_the_maximum_length_leaves_room_for_one_token(asynchronous: bool) -> None:
    bench = Bench(num_blocks=20, max_model_len=32, asynchronous=asynchronous)
    last = bench.run("31", range(31), 1)
    assert (len(last.output), last.finish_reason) == (1, "length")
    capped = bench.run("capped", range(100, 131), 9)
    assert (len(capped.output), capped.finish_reason) == (1, "length")
    for length in (32, 33):
        with pytest.raises(RequestError, match=rf"prompt of {length} tokens.*max_model_len=32.*shorten it to 31"):
            bench.add(f"{length}", range(length), 1)
    bench.run("normal", range(50, 60), 4)


@MODES
def test_an_empty_prompt_is_refused_alone(asynchronous: bool) -> None:
    bench = eight_blocks(asynchronous)
    healthy = bench.add("healthy", range(5), 4)
    bench.step()
    with pytest.raises(RequestError, match="'nothing' has an empty prompt; give it at least 1 token"):
        bench.add("nothing", [], 4)
    bench.drain()
    assert bench.outputs[healthy.handle] == bench.expected[healthy.handle]
    bench.run("one", [5], 2)
