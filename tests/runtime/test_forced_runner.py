"""Forced tokens, without a model and without torch."""

from __future__ import annotations

import subprocess
import sys

import pytest

from pellucid.errors import InvariantViolation
from pellucid.plan import Admission, SamplingParams, StepPlan, StepResult
from pellucid.runtime.forced import PAST_END, ForcedRunner


def admission(handle: int, name: str, tokens: int, prompt_len: int) -> Admission:
    return Admission(handle, name, tuple(range(tokens)), prompt_len, SamplingParams())


def plan(
    step: int, *rows: tuple[int, int, int, bool], admitted: tuple[Admission, ...] = (), released: tuple[int, ...] = ()
) -> StepPlan:
    handles, starts, counts, samples = zip(*rows, strict=True) if rows else ((), (), (), ())
    return StepPlan(step, released, admitted, (), (), handles, starts, counts, samples)


def test_tokens_go_by_name_and_output_position() -> None:
    runner = ForcedRunner({"A": [10, 11, 12], "B": [20, 21]})
    runner.launch(
        plan(1, (1, 0, 4, True), (2, 0, 3, False), admitted=(admission(1, "A", 4, 4), admission(2, "B", 5, 5)))
    )
    assert runner.collect() == StepResult(1, (10,))
    runner.launch(plan(2, (2, 3, 2, True), (1, 4, 1, True)))
    assert runner.collect() == StepResult(2, (20, 11))


def test_a_resumed_request_goes_on_where_it_was() -> None:
    runner = ForcedRunner({"A": [10, 11, 12]})
    runner.launch(plan(1, (1, 0, 4, True), admitted=(admission(1, "A", 4, 4),)))
    runner.launch(plan(2, released=(1,)))
    assert (runner.collect(), runner.collect()) == (StepResult(1, (10,)), StepResult(2, ()))
    runner.launch(plan(3, (1, 0, 5, True), admitted=(admission(1, "A", 5, 4),)))
    assert runner.collect() == StepResult(3, (11,))


def test_two_plans_in_flight_are_collected_in_order_and_a_third_is_refused() -> None:
    runner = ForcedRunner(lambda name, index: 100 * len(name) + index)
    runner.launch(plan(1, (1, 0, 4, True), admitted=(admission(1, "AB", 4, 4),)))
    runner.launch(plan(2, (1, 4, 1, True)))
    with pytest.raises(InvariantViolation, match="Step 3 was launched while steps 1, 2 are in flight"):
        runner.launch(plan(3, (1, 5, 1, True)))
    assert (runner.collect(), runner.collect()) == (StepResult(1, (200,)), StepResult(2, (201,)))
    with pytest.raises(InvariantViolation, match="no step is in flight"):
        runner.collect()
    runner.launch(plan(3, (1, 5, 1, True)))
    assert runner.collect() == StepResult(3, (202,))


def test_one_token_past_the_end_is_no_token_and_a_second_is_refused() -> None:
    runner = ForcedRunner({"A": [10]})
    runner.launch(plan(1, (1, 0, 4, True), admitted=(admission(1, "A", 4, 4),)))
    runner.launch(plan(2, (1, 4, 1, True)))
    assert (runner.collect().tokens, runner.collect().tokens) == ((10,), (PAST_END,))
    with pytest.raises(InvariantViolation, match="'A' samples output 2; its forced tokens are 1"):
        runner.launch(plan(3, (1, 5, 1, True)))


def test_an_unknown_name_is_refused() -> None:
    with pytest.raises(InvariantViolation, match="'Z' samples output 0; its forced tokens are none"):
        ForcedRunner({"A": [10]}).launch(plan(1, (1, 0, 4, True), admitted=(admission(1, "Z", 4, 4),)))


def test_it_needs_neither_torch_nor_numpy() -> None:
    code = "import sys, pellucid.runtime.forced; sys.exit('torch' in sys.modules or 'numpy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
