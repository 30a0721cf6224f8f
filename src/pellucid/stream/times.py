"""When a step was: Unix times of steps, few enough to keep and to send."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping

APART = 0.5
"""Seconds between two times that are kept; a step in between was at the earlier one, to this precision."""

MOST = 4_096
"""Half an hour of an engine that never rests; the oldest quarter goes when it is full."""


class StepTimes:
    """Unix times by step, in ascending order of both.

    A step that is not further than ``APART`` from the last one kept is not kept, so that a step's time is known
    to ``APART`` seconds, however many steps there are and however long the engine rests.
    """

    def __init__(self) -> None:
        self._steps: list[int] = []
        self._times: list[float] = []
        self._next = float("-inf")

    def note(self, step: int, time: float) -> None:
        """``step`` happened at ``time``; costs one comparison for most steps."""
        if time < self._next:
            return
        self._next = time + APART
        if self._steps and step <= self._steps[-1]:
            return
        self._steps.append(step)
        self._times.append(time)
        if len(self._steps) > MOST:
            del self._steps[: MOST // 4], self._times[: MOST // 4]

    def at(self, step: int) -> float | None:
        """When ``step`` was, None if that is forgotten or was never known."""
        place = bisect_right(self._steps, step)
        return self._times[place - 1] if place else None

    def table(self) -> dict[int, float]:
        """What is kept."""
        return dict(zip(self._steps, self._times, strict=True))

    def learn(self, table: Mapping[int, float]) -> None:
        """Take over the table of somebody who watched longer, in place of what is kept."""
        self._steps = sorted(table)
        self._times = [table[step] for step in self._steps]
        self._next = self._times[-1] + APART if self._times else float("-inf")
