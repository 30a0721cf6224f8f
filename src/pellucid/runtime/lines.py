"""Which request has which line of the device's tables, and how far it has come: `Rows` for a runner in a hurry."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from pellucid.errors import InvariantViolation
from pellucid.plan import Admission, SamplingParams, StepPlan
from pellucid.runtime.rows import check_admission, check_range

Numbers = NDArray[np.int32]
Indices = NDArray[np.intp]
"""Of numpy's own type for them: looking up with int32 takes several times as long."""


class Occupant(NamedTuple):
    """What a line's request brought along."""

    handle: int
    prompt_len: int
    sampling: SamplingParams


class Ranges(NamedTuple):
    """The rows of a plan, in its order, as columns [R]."""

    lines: Indices
    counts: Numbers
    ends: Numbers
    """Tokens that have KV once the step has run; where a row samples, the position of its next token."""
    samples: NDArray[np.bool_]


class Lines:
    """A fixed number of lines, given to requests by handle. Numbers of all lines lie side by side in arrays.

    It refuses what `Rows` refuses, with the same `InvariantViolation`, but looks at all rows of a plan at once.
    """

    def __init__(self, count: int) -> None:
        self.known = np.zeros(count, np.int32)
        """How many tokens the request has, those that this runner sampled included."""
        self.computed = np.zeros(count, np.int32)
        """How many of them have KV; -1 until the first plan shows what the prefix cache had."""
        self._occupants: list[Occupant | None] = [None] * count
        self._lines: dict[int, int] = {}
        self._free = list(range(count - 1, -1, -1))
        self._order: tuple[tuple[int, ...], Indices] = ((), np.zeros(0, np.intp))

    def __getitem__(self, handle: int) -> int:
        try:
            return self._lines[handle]
        except KeyError:
            raise InvariantViolation(f"There is no row {handle}: it was never admitted, or was released.") from None

    def occupant(self, line: int) -> Occupant:
        occupant = self._occupants[line]
        assert occupant is not None
        return occupant

    def apply(self, plan: StepPlan) -> list[int]:
        """Drop the rows that ``plan`` releases, then give a line to each it admits: those lines, in its order."""
        if plan.released or plan.admitted:
            self._order = ((), self._order[1][:0])
        for handle in plan.released:
            line = self[handle]
            del self._lines[handle]
            self._occupants[line] = None
            self._free.append(line)
        return [self._admit(admission) for admission in plan.admitted]

    def _admit(self, admission: Admission) -> int:
        handle = admission.handle
        check_admission(admission, live=handle in self._lines)
        if not self._free:
            raise InvariantViolation(f"Row {handle} is admitted, but all {len(self._occupants)} lines are taken.")
        line = self._free.pop()
        self._lines[handle] = line
        self._occupants[line] = Occupant(handle, admission.prompt_len, admission.sampling)
        self.known[line], self.computed[line] = len(admission.tokens), -1
        return line

    def advance(self, plan: StepPlan) -> Ranges:
        """Account for all rows of ``plan``: their tokens computed, and one more known where a row samples."""
        lines = self._in_order(plan.handles)
        starts = np.array(plan.starts, np.int32)
        counts = np.array(plan.counts, np.int32)
        samples = np.array(plan.samples, np.bool_)
        ends = starts + counts
        known, computed = self.known[lines], self.computed[lines]
        wrong = (computed != starts) & (computed >= 0) | (starts < 0) | (counts < 1)
        wrong |= (ends > known) | samples & (ends != known)
        if wrong.any():
            self._explain(plan, lines, int(wrong.argmax()))
        self.computed[lines] = ends
        self.known[lines] = known + samples
        return Ranges(lines, counts, ends, samples)

    def _in_order(self, handles: tuple[int, ...]) -> Indices:
        """The lines of ``handles``; decoding asks for the same ones step after step."""
        if self._order[0] != handles:
            if len(set(handles)) < len(handles):
                twice = next(handle for handle in handles if handles.count(handle) > 1)
                raise InvariantViolation(f"Row {twice} runs {handles.count(twice)} times in one plan.")
            self._order = handles, np.array([self[handle] for handle in handles], np.intp)
        return self._order[1]

    def _explain(self, plan: StepPlan, lines: Indices, row: int) -> None:
        line = lines[row]
        computed = None if self.computed[line] < 0 else int(self.computed[line])
        known = int(self.known[line])
        check_range(plan.handles[row], computed, known, plan.starts[row], plan.counts[row], plan.samples[row])
