"""When a step was is known to half a second, however many there were."""

from __future__ import annotations

import random

from pellucid.stream.times import APART, MOST, StepTimes


def test_a_steps_time_is_known_to_half_a_second() -> None:
    for seed in range(20):
        draw = random.Random(seed)
        times, truth, now = StepTimes(), {}, 0.0
        for step in range(1, 500):
            now += draw.choice((0.0, 0.01, 0.1, 0.6, 100.0))
            times.note(step, now)
            truth[step] = now
        learned = StepTimes()
        learned.learn(times.table())
        for step, when in truth.items():
            for each in (times, learned):
                known = each.at(step)
                assert known is not None
                assert 0 <= when - known < APART


def test_what_is_kept_is_bounded_and_the_oldest_goes_first() -> None:
    times = StepTimes()
    for step in range(1, 3 * MOST):
        times.note(step, step * 1.0)
    assert len(times.table()) <= MOST
    assert times.at(1) is None
    assert times.at(3 * MOST - 1) == 3 * MOST - 1
    assert StepTimes().at(1) is None
