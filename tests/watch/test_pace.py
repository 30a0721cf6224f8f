"""Steps a second, by the engine's own clock."""

from __future__ import annotations

from pellucid.watch.pace import Pace


def test_no_rate_before_there_was_time_to_see_one() -> None:
    pace = Pace(100.0, 7)
    pace.note(100.1, 8)
    assert pace.rate(100.2) is None
    assert pace.rate(100.5) == 2.0


def test_the_last_two_seconds_count() -> None:
    pace = Pace(0.0, 0)
    for n in range(1, 101):
        pace.note(n / 10, n)
    assert pace.rate(10.0) == 10.0
    for n in range(1, 41):
        pace.note(10 + n / 20, 100 + n)
    assert pace.rate(12.0) == 20.0


def test_an_engine_that_rests_has_a_rate_of_zero() -> None:
    pace = Pace(0.0, 0)
    pace.note(1.0, 30)
    assert pace.rate(1.5) == 20.0
    assert pace.rate(60.0) == 0.0


def test_several_turns_in_one_step_are_one_step() -> None:
    pace = Pace(0.0, 5)
    for time in (0.2, 0.4, 0.6, 1.0):
        pace.note(time, 6)
    assert pace.rate(1.0) == 1.0
