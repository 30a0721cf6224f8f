"""What the scheduler decides, step by step, on pools of a few blocks."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from model_free import Bench, forced_token
from pellucid.engine.config import SchedulerConfig
from pellucid.errors import ConfigError, InvariantViolation, RequestError
from pellucid.plan import StepPlan, StepResult

A, B, C = range(10, 20), range(20, 30), range(30, 40)


def planned(bench: Bench) -> dict[str, int]:
    """The tokens that the last plan computes, by request, in the order of its rows."""
    plan = bench.memory.plans[-1]
    return {bench.names[handle]: count for handle, count in zip(plan.handles, plan.counts, strict=True)}


def names(sequences: Iterable) -> list[str]:
    return [sequence.name for sequence in sequences]


# -- one budget, no phases -----------------------------------------------------------------------------


def test_a_prompt_over_the_budget_is_computed_in_chunks() -> None:
    bench = Bench(num_blocks=9, max_num_batched_tokens=4)
    bench.add("a", A, 3)
    chunks, tables = [], []
    for _ in range(4):
        bench.step()
        chunks.append(planned(bench))
        tables.append(len(bench.table("a")))
    assert chunks == [{"a": 4}, {"a": 4}, {"a": 2}, {"a": 1}]
    assert tables == [1, 2, 3, 3]  # blocks as tokens are computed, not for the whole prompt
    assert [plan.samples for plan in bench.memory.plans] == [(False,), (False,), (True,), (True,)]


def test_running_requests_come_first_and_the_rest_of_the_budget_is_for_the_waiting() -> None:
    bench = Bench(num_blocks=20, max_num_batched_tokens=6)
    bench.add("a", A[:4])
    bench.step()
    bench.add("b", B)
    bench.add("c", C)
    bench.step()
    assert planned(bench) == {"a": 1, "b": 5}
    bench.step()
    assert planned(bench) == {"a": 1, "b": 5}
    bench.step()
    assert planned(bench) == {"a": 1, "b": 1, "c": 4}


def test_a_budget_of_one_token_drains_too() -> None:
    bench = Bench(num_blocks=9, max_num_batched_tokens=1)
    sequences = [bench.add(name, prompt) for name, prompt in (("a", A[:5]), ("b", B[:3]))]
    bench.drain()
    assert [bench.outputs[s.handle] for s in sequences] == [bench.expected[s.handle] for s in sequences]


def test_at_most_max_num_seqs_run() -> None:
    bench = Bench(num_blocks=20, max_num_seqs=2)
    for name, prompt in (("a", A), ("b", B), ("c", C)):
        bench.add(name, prompt, 2)
    bench.step()
    assert (names(bench.scheduler.running), names(bench.scheduler.waiting)) == (["a", "b"], ["c"])
    bench.step()
    bench.step()
    assert names(bench.scheduler.running) == ["c"]


# -- admission -----------------------------------------------------------------------------------------


def test_only_the_head_is_admitted_even_if_the_next_would_fit() -> None:
    bench = Bench(num_blocks=5)
    bench.add("a", A[:8], 4)
    bench.step()
    bench.add("big", B[:9], 2)
    bench.add("small", C[:2], 2)
    bench.step()
    assert names(bench.scheduler.waiting) == ["big", "small"]
    bench.drain()


def test_a_chunked_prompt_is_admitted_only_with_room_for_the_whole() -> None:
    bench = Bench(num_blocks=5, max_num_batched_tokens=4)
    bench.add("a", A[:4], 8)
    bench.step()
    bench.add("b", B[:10], 2)
    bench.step()  # 3 blocks are needed and 2 left
    assert names(bench.scheduler.waiting) == ["b"]


def test_the_watermark_holds_while_anything_runs() -> None:
    bench = Bench(num_blocks=10, watermark=0.3)  # admission leaves 3 blocks
    for name, prompt in (("a", A[:8]), ("b", B[:8]), ("c", C[:8]), ("d", [1])):
        bench.add(name, prompt, 1)
    plan = bench.launch()
    assert [bench.names[handle] for handle in plan.handles] == ["a", "b", "c"]
    assert bench.snapshot.pool.reclaimable == 3
    bench.collect()
    bench.drain()


def test_the_watermark_does_not_hold_for_the_first() -> None:
    bench = Bench(num_blocks=10, watermark=0.9)
    sequence = bench.add("a", range(36), 1)
    bench.step()
    assert sequence.finish_reason == "length"
    bench.check_baseline()


def test_a_prefix_hit_is_not_computed_again() -> None:
    bench = Bench(num_blocks=9)
    bench.run("a", A)
    bench.add("b", [*A[:9], 99], 2)
    bench.step()
    assert planned(bench) == {"b": 2}
    assert bench.hit("b") == 8


def test_a_request_admitted_later_in_the_same_step_shares() -> None:
    bench = Bench(num_blocks=9)
    bench.add("a", A, 2)
    bench.add("b", A, 2)
    bench.step()
    assert planned(bench) == {"a": 10, "b": 2}
    assert bench.table("a")[:2] == bench.table("b")[:2] == (1, 2)


# -- pressure ------------------------------------------------------------------------------------------


def pressed(**options: object) -> Bench:
    """Three requests of one full block each on a pool of four: in the second step each needs another."""
    bench = Bench(num_blocks=5, enable_prefix_caching=False, **options)
    for name, prompt, priority in (("a", A[:4], 1), ("b", B[:4], 2), ("c", C[:4], 0)):
        bench.add(name, prompt, 6, priority=priority)
    bench.step()
    bench.step()
    return bench


def test_the_last_of_the_running_list_gives_way() -> None:
    bench = pressed()
    assert bench.table("a") == (1, 4)
    assert bench.table("b") == (2, 3)  # c's block
    assert names(bench.scheduler.waiting) == ["c"]
    assert bench.snapshot.request("c").preemptions == 1


def test_under_priority_the_least_important_gives_way() -> None:
    bench = pressed(scheduling_policy="priority")
    assert names(bench.scheduler.running) == ["c", "a"]
    assert names(bench.scheduler.waiting) == ["b"]
    assert (bench.table("c"), bench.table("a")) == ((1, 4), (2, 3))


def test_equal_priorities_give_way_by_arrival() -> None:
    bench = Bench(num_blocks=5, enable_prefix_caching=False, scheduling_policy="priority")
    for name, prompt in (("a", A[:4]), ("b", B[:4]), ("c", C[:4])):
        bench.add(name, prompt, 6)
    bench.step()
    bench.step()
    assert names(bench.scheduler.waiting) == ["c"]


def test_a_victim_that_was_planned_already_is_struck_out() -> None:
    """Priority mode: b, planned before c, is the victim when c needs a block."""
    bench = Bench(num_blocks=6, enable_prefix_caching=False, scheduling_policy="priority", max_num_batched_tokens=16)
    bench.add("b", B[:5], 6, priority=5)
    bench.step()
    bench.add("c", C[:4], 6, priority=1)
    bench.add("d", A[:8], 6, priority=3)
    bench.step()
    assert names(bench.scheduler.running) == ["b", "c", "d"]
    bench.step()
    assert planned(bench) == {"c": 1, "d": 1}
    assert names(bench.scheduler.waiting) == ["b"]
    bench.drain()


def test_nobody_is_admitted_in_a_step_that_preempted() -> None:
    bench = Bench(num_blocks=5, enable_prefix_caching=False)
    for name, prompt in (("a", A[:4]), ("b", B[:4]), ("c", C[:4])):
        bench.add(name, prompt, 6)
    bench.step()
    bench.add("tiny", [1], 1)
    bench.step()
    assert names(bench.scheduler.waiting) == ["c", "tiny"]


def test_a_victim_goes_to_the_front_of_the_queue() -> None:
    bench = pressed()
    bench.add("late", [1, 2], 1)
    assert names(bench.scheduler.waiting) == ["c", "late"]


def test_a_victim_waits_by_its_priority() -> None:
    bench = pressed(scheduling_policy="priority")
    for name, priority in (("soon", 1), ("same", 2), ("late", 3)):
        bench.add(name, [1], 1, priority=priority)
    assert names(bench.scheduler.waiting) == ["soon", "b", "same", "late"]


def test_a_fenced_block_on_its_way_is_waited_for() -> None:
    """One step ahead, a victim's only block is fenced: pre-empting everybody, the first included, gains nothing."""
    bench = Bench(num_blocks=4, enable_prefix_caching=False, asynchronous=True)
    a, b, c = (bench.add(name, prompt, 4) for name, prompt in (("a", A[:4]), ("b", B[:4]), ("c", C[:4])))
    bench.drain()
    assert (a.table.preemptions, b.table.preemptions, c.table.preemptions) == (0, 1, 1)


# -- one step ahead ------------------------------------------------------------------------------------


def test_synchronous_two_tokens_take_two_steps() -> None:
    bench = Bench(num_blocks=9)
    bench.add("a", A, 2)
    assert [len(bench.step()), len(bench.step())] == [1, 1]
    assert not bench.core.has_unfinished_requests()


def test_asynchronous_two_tokens_are_there_after_two_steps_and_gone_after_three() -> None:
    bench = Bench(num_blocks=9, asynchronous=True)
    bench.add("a", A, 2)
    assert bench.step() == []
    assert len(bench.step()) == 1
    assert len(bench.table("a")) == 3
    assert bench.core.has_unfinished_requests()
    assert len(bench.step()) == 1
    assert not bench.core.has_unfinished_requests()
    assert [sum(plan.counts) for plan in bench.memory.plans] == [10, 1]  # nothing is planned past max_tokens


def test_a_stop_seen_one_step_late_wastes_one_row_and_shows_no_token() -> None:
    bench = Bench(num_blocks=9, asynchronous=True, eos_token_ids=(7,))
    sequence = bench.add("a", A, 8, output=[5, 7])
    bench.drain()
    assert bench.outputs[sequence.handle] == [5, 7]
    assert len(bench.memory.plans) == 3


def test_has_unfinished_requests_while_a_step_is_under_way() -> None:
    bench = Bench(num_blocks=9, asynchronous=True)
    bench.add("a", A, 8)
    bench.step()
    bench.abort("a")
    assert bench.core.has_unfinished_requests()
    assert bench.step() == []
    assert not bench.core.has_unfinished_requests()
    bench.check_baseline()


def test_drain_commits_without_planning() -> None:
    bench = Bench(num_blocks=9, asynchronous=True)
    bench.add("a", A, 8)
    bench.step()
    assert [progress.token for progress in bench.core.drain()] == [forced_token("a", 0)]
    assert len(bench.memory.plans) == 1


# -- stopping ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("asynchronous", [False, True])
@pytest.mark.parametrize(
    ("output", "options", "expected", "reason", "stop"),
    [
        ([5, 6, 7, 8], {}, [5, 6, 7], "stop", None),  # the end token stays in the output
        ([5, 6, 7, 8], {"ignore_eos": True, "max_tokens": 4}, [5, 6, 7, 8], "length", None),
        ([5, 6, 7, 8], {"stop_token_ids": (6,)}, [5, 6], "stop", 6),
        ([5, 6, 7, 8], {"stop_token_ids": (7,)}, [5, 6, 7], "stop", 7),
        ([7, 7, 5, 7], {"min_tokens": 3, "max_tokens": 9}, [7, 7, 5, 7], "stop", None),
        ([6, 6, 6], {"min_tokens": 3, "stop_token_ids": (6,)}, [6, 6, 6], "stop", 6),
        ([5, 6], {"max_tokens": 1}, [5], "length", None),
        ([5, 7], {"max_tokens": 2}, [5, 7], "stop", None),  # both: the end token is the better reason
    ],
)
def test_when_a_request_stops(
    asynchronous: bool, output: list[int], options: dict, expected: list[int], reason: str, stop: int | None
) -> None:
    bench = Bench(num_blocks=9, asynchronous=asynchronous, eos_token_ids=(7,))
    sequence = bench.add("a", A, output=output, **{"max_tokens": 8, **options})
    bench.drain()
    assert bench.outputs[sequence.handle] == expected
    assert (sequence.finish_reason, sequence.stop_reason) == (reason, stop)


def test_the_last_token_is_never_computed() -> None:
    bench = Bench(num_blocks=9)
    bench.add("a", A[:8], 5)
    bench.drain()
    assert max(plan.starts[0] + plan.counts[0] for plan in bench.memory.plans) == 12
    assert bench.snapshot.pool.taken == 3


# -- what a plan says ----------------------------------------------------------------------------------


def test_plans_speak_in_differences() -> None:
    bench = Bench(num_blocks=9)
    first = bench.add("a", A[:3], 3)
    bench.step()
    bench.step()
    bench.step()
    one, two, three = bench.memory.plans
    assert [admission.tokens for admission in one.admitted] == [tuple(A[:3])]
    assert one.new_blocks == ((first.handle, (1,)),)
    assert (two.admitted, two.new_blocks, two.released) == ((), (), ())
    assert three.new_blocks == ((first.handle, (2,)),)
    bench.add("b", B[:3], 1)
    bench.step()
    assert bench.memory.plans[-1].released == (first.handle,)


def test_a_plan_tells_once_of_the_moves_made_since_the_last_one() -> None:
    bench = Bench(num_blocks=9)
    bench.add("a", A[:3], 8)
    bench.step()
    bench.move(1, 8)
    bench.move(8, 5)
    assert bench.table("a") == (5,)
    bench.step()
    bench.step()
    _, two, three = bench.memory.plans
    assert two.moves == two.copies == ((1, 8), (8, 5))
    assert three.moves == three.copies == ()
    bench.drain()


@pytest.mark.parametrize("asynchronous", [False, True])
def test_a_block_is_found_where_it_was_moved_after_its_request_has_left(asynchronous: bool) -> None:
    """No plan was made between the move, the end of its owner and the hit; the copy still comes first."""
    bench = Bench(num_blocks=9, asynchronous=asynchronous)
    bench.add("a", A, 8)
    bench.step()
    bench.step()
    bench.move(1, 8)
    bench.abort("a")
    bench.add("b", A, 2)
    bench.step()
    assert bench.table("b")[0] == 8
    assert bench.hit("b") > 0
    bench.drain()


def test_a_move_and_the_pre_emption_of_its_request_in_one_plan() -> None:
    bench = Bench(num_blocks=6, enable_prefix_caching=False)
    bench.add("a", A[:4], 8)
    second = bench.add("b", B[:4], 8)
    for _ in range(5):  # to 8 tokens each, in two blocks each
        bench.step()
    (free,) = bench.snapshot.pool.reuse_order
    moved = bench.table("b")[0]
    bench.move(moved, free)
    bench.step()
    plan = bench.memory.plans[-1]
    assert (plan.released, plan.moves) == ((second.handle,), ((moved, free),))
    bench.drain()
    assert bench.outputs == bench.expected


def test_a_step_with_nothing_to_do_launches_nothing() -> None:
    bench = Bench(num_blocks=9)
    plan = bench.launch()
    assert plan == StepPlan(1, (), (), (), (), (), (), (), ())
    assert bench.kv.launched == []


def test_a_result_of_another_step_is_refused() -> None:
    bench = Bench(num_blocks=9)
    bench.add("a", A, 3)
    plan = bench.launch()
    with pytest.raises(InvariantViolation, match="result of step 9 with 1 tokens does not answer the plan of step 1"):
        bench.scheduler.commit(StepResult(plan.step + 8, (1,)))


def test_a_result_with_too_many_tokens_is_refused() -> None:
    bench = Bench(num_blocks=9)
    bench.add("a", A, 3)
    plan = bench.launch()
    with pytest.raises(InvariantViolation, match="with 2 tokens"):
        bench.scheduler.commit(StepResult(plan.step, (1, 2)))


# -- refusals of the configuration ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("option", "value", "says"),
    [
        ("scheduling_policy", "lifo", "'lifo' is not known; choose one of fcfs, priority"),
        ("max_model_len", 1, "2 or more, not 1"),
        ("max_num_seqs", 0, "at least 1, not 0"),
        ("max_num_batched_tokens", 0, "at least 1, not 0"),
        ("watermark", 1.0, r"in \[0, 1\), not 1.0"),
        ("watermark", -0.1, r"in \[0, 1\), not -0.1"),
        ("watermark", float("nan"), r"in \[0, 1\), not nan"),
    ],
)
def test_a_configuration_that_cannot_work(option: str, value: object, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        SchedulerConfig(**{"max_model_len": 64, option: value})


def test_a_bad_request_leaves_nothing_behind() -> None:
    bench = Bench(num_blocks=9, vocab_size=100)
    before = bench.snapshot
    for prompt in ([], [100], [-1], range(64)):
        with pytest.raises(RequestError):
            bench.add("a", prompt)
    assert bench.snapshot == before
    assert not bench.core.has_unfinished_requests()
    bench.run("a", A)
