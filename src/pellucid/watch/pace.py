"""How many steps a second, over the last seconds."""

from __future__ import annotations

from collections import deque

WINDOW = 2.0
"""Seconds: long enough to be steady, short enough to see an engine stop."""
LEAST = 0.5
"""Seconds of watching before there is a rate."""


class Pace:
    """Notes at which Unix time the engine was at which step."""

    def __init__(self, time: float, step: int) -> None:
        self._since = time
        self._seen = deque([(time, step)])  # the first one is the last before the window

    def note(self, time: float, step: int) -> None:
        """The engine was at ``step`` at ``time``; neither is less than the one before."""
        self._seen.append((time, step))
        self._leave(time)

    def rate(self, now: float) -> float | None:
        """Steps a second in the `WINDOW` before ``now``, or since the first note; None if that was just now."""
        if (seconds := min(WINDOW, now - self._since)) < LEAST:
            return None
        self._leave(now)
        return (self._seen[-1][1] - self._seen[0][1]) / seconds

    def _leave(self, now: float) -> None:
        while len(self._seen) > 1 and self._seen[1][0] <= now - WINDOW:
            self._seen.popleft()
