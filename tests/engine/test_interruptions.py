"""What is left when something strikes: Ctrl-C, an error in the runner, a name that is used again."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable

import pytest

from pellucid import LLM, SamplingParams
from pellucid.errors import EngineStopped
from pellucid.kv import BlockState

Make = Callable[..., LLM]
GREEDY = SamplingParams(temperature=0, max_tokens=8, ignore_eos=True)


def strike_at(llm: LLM, step: int, strike: Callable[[], None]) -> None:
    """Have ``strike`` called in the middle of the ``step``-th step that samples."""
    seen = 0

    def on_logits(plan: object, logits: object) -> None:
        nonlocal seen
        seen += 1
        if seen == step:
            strike()

    llm._core.executor._on_logits = on_logits


def ctrl_c() -> None:
    os.kill(os.getpid(), signal.SIGINT)


@pytest.mark.parametrize("asynchronous", [False, True])
@pytest.mark.parametrize("step", [1, 2, 5])
def test_ctrl_c_in_generate_waits_for_the_step_and_leaves_a_usable_engine(
    engine: Make, asynchronous: bool, step: int
) -> None:
    expected = engine().generate([[4, 5, 6], [1, 2]], GREEDY)
    llm = engine(async_scheduling=asynchronous)
    llm.add_request("other", [4, 5, 6], GREEDY)
    strike_at(llm, step, ctrl_c)
    with pytest.raises(KeyboardInterrupt):
        llm.generate([[7, 8, 9]] * 3, GREEDY)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    assert [request.name for request in llm.kv.snapshot().requests] == ["other"]
    last = None
    while llm.has_unfinished_requests():
        for output in llm.step():
            assert output.request_id == "other"
            last = output
    assert last is not None
    assert last.outputs[0].token_ids == expected[0].outputs[0].token_ids
    assert llm.generate([[1, 2]], GREEDY)[0].outputs[0].token_ids == expected[1].outputs[0].token_ids
    assert llm.kv.snapshot().pool.reclaimable == llm.kv.snapshot().pool.usable


def test_an_error_in_the_middle_of_a_step_stops_the_engine_clearly(engine: Make) -> None:
    def fail() -> None:
        raise RuntimeError("out of memory")

    llm = engine()
    llm.add_request("other", [4, 5, 6], GREEDY)
    strike_at(llm, 3, fail)
    with pytest.raises(RuntimeError, match="out of memory"):
        llm.generate([[7, 8, 9]], GREEDY)
    assert not llm._core.has_unfinished_requests()
    for call in (llm.step, lambda: llm.add_request("x", [1], GREEDY), lambda: llm.generate([[1]], GREEDY)):
        with pytest.raises(EngineStopped, match=r"stopped in step \d+, by RuntimeError.*LLM\(old.loaded"):
            call()
    fresh = LLM(llm.loaded, num_gpu_blocks_override=50)
    assert len(fresh.generate([[7, 8, 9]], GREEDY)[0].outputs[0].token_ids) == 8


def test_generate_leaves_nothing_under_way(engine: Make) -> None:
    llm = engine()
    free = llm.generate([[3, 1, 4]], SamplingParams(temperature=0, max_tokens=12, ignore_eos=True))[0].outputs[0]
    stop = SamplingParams(temperature=0, max_tokens=12, ignore_eos=True, stop_token_ids=[free.token_ids[4]])
    assert llm.generate([[3, 1, 4]], stop)[0].outputs[0].finish_reason == "stop"
    snapshot = llm.kv.snapshot()
    assert (snapshot.launched, snapshot.pool.count(BlockState.FENCED)) == ((), 0)
    assert not llm.has_unfinished_requests()


def test_an_output_is_not_lost_when_its_name_is_used_again(engine: Make) -> None:
    llm = engine()
    llm.add_request("A", [1, 2, 3], SamplingParams(temperature=0, max_tokens=2, ignore_eos=True))
    llm.generate([[7, 8, 9]], GREEDY)  # A ends meanwhile
    llm.add_request("A", [4, 5, 6], GREEDY)
    outputs = llm.step()
    assert [(output.request_id, output.finished) for output in outputs] == [("A", True), ("A", False)]
    assert [output.prompt_token_ids for output in outputs] == [[1, 2, 3], [4, 5, 6]]


def test_nothing_comes_after_an_abort(engine: Make) -> None:
    llm = engine()
    llm.add_request("B", [1, 2, 3], SamplingParams(temperature=0, max_tokens=50, ignore_eos=True))
    llm.generate([[7, 8, 9]], GREEDY)
    partial = llm.abort_request("B")
    assert len(partial.outputs[0].token_ids) > 1
    while llm.has_unfinished_requests():
        assert llm.step() == []
    assert llm.kv.snapshot().pool.held == 0


def test_what_a_caller_does_to_an_output_changes_no_answer(engine: Make) -> None:
    llm = engine()
    llm.add_request("C", [1, 2, 3], GREEDY)
    (first,) = llm.step()
    first.prompt_token_ids.append(99)  # of all outputs of a request, and of nothing else
    first.outputs[0].token_ids.append(99)
    while llm.has_unfinished_requests():
        (last,) = llm.step()
    assert last.prompt_token_ids is first.prompt_token_ids
    assert last.outputs[0].token_ids == llm.generate([[1, 2, 3]], GREEDY)[0].outputs[0].token_ids
