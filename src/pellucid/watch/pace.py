"""How many steps a second, over the last seconds."""

from __future__ import annotations

from collections import deque

WINDOW = 2.0
"""Seconds: long enough to be steady, short enough to see an engine stop."""


class Pace:
    """Counts steps by the time at which the engine made them."""

    def __init__(self) -> None:
        self._times: deque[float] = deque()

    def step(self, time: float) -> None:
        """A step was made at ``time``, not before the one before."""
        self._times.append(time)
        self._leave(time)

    def rate(self, now: float) -> float:
        """Steps a second in the `WINDOW` before ``now``."""
        self._leave(now)
        return len(self._times) / WINDOW

    def _leave(self, now: float) -> None:
        while self._times and self._times[0] <= now - WINDOW:
            self._times.popleft()
