"""The plans that were launched and not yet collected."""

from __future__ import annotations

from collections import deque
from typing import Generic, TypeVar

from pellucid.errors import InvariantViolation

T = TypeVar("T")

MAX_IN_FLIGHT = 2
"""Asynchronous scheduling launches one plan ahead of the result it commits, never more."""


class InFlight(Generic[T]):
    """A queue of (step, what it sampled), oldest first. Both ends raise `InvariantViolation` when misused."""

    def __init__(self) -> None:
        self._steps: deque[tuple[int, T]] = deque()

    def refuse_more(self, step: int) -> None:
        """Called before any state changes: the plan of ``step`` may only be launched while there is room."""
        if len(self._steps) >= MAX_IN_FLIGHT:
            flying = ", ".join(str(flying) for flying, _ in self._steps)
            raise InvariantViolation(f"Step {step} was launched while steps {flying} are in flight; collect one first.")

    def put(self, step: int, sampled: T) -> None:
        self._steps.append((step, sampled))

    def take(self) -> tuple[int, T]:
        if not self._steps:
            raise InvariantViolation("Nothing to collect: no step is in flight.")
        return self._steps.popleft()
