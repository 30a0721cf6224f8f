"""What a runner knows of each request, kept by applying the differences that plans speak in. No tensors here."""

from __future__ import annotations

from dataclasses import dataclass

from pellucid.errors import InvariantViolation
from pellucid.plan import Admission, SamplingParams, StepPlan


@dataclass(slots=True)
class Row:
    """One request. ``index`` is its place in the runner's tables; another gets it once this one is released."""

    index: int
    handle: int
    name: str
    prompt_len: int
    sampling: SamplingParams
    known: int
    """How many tokens there are, those sampled by this runner included."""
    computed: int | None = None
    """How many of them have KV; unknown until the first plan shows what the prefix cache had."""


class Rows:
    """The live rows by handle.

    A plan that does not fit them is a fault of the scheduler, never of a request: every method
    raises `InvariantViolation`, naming the handle and the numbers.
    """

    def __init__(self) -> None:
        self._rows: dict[int, Row] = {}
        self._free: list[int] = []

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, handle: int) -> Row:
        try:
            return self._rows[handle]
        except KeyError:
            raise InvariantViolation(f"There is no row {handle}: it was never admitted, or was released.") from None

    def apply(self, plan: StepPlan) -> None:
        """Drop the rows that ``plan`` releases, then make those it admits."""
        for handle in plan.released:
            self._free.append(self[handle].index)
            del self._rows[handle]
        for admission in plan.admitted:
            self._admit(admission)

    def _admit(self, admission: Admission) -> None:
        handle, known = admission.handle, len(admission.tokens)
        check_admission(admission, live=handle in self._rows)
        index = self._free.pop() if self._free else len(self._rows)
        self._rows[handle] = Row(index, handle, admission.name, admission.prompt_len, admission.sampling, known)

    def advance(self, handle: int, start: int, count: int, samples: bool) -> Row:
        """Account for ``count`` tokens computed from ``start`` on, and for one more known if the row samples."""
        row = self[handle]
        check_range(handle, row.computed, row.known, start, count, samples)
        row.computed = start + count
        row.known += samples
        return row


def check_admission(admission: Admission, *, live: bool) -> None:
    """Raise `InvariantViolation` if there is such a row already (``live``), or the prompt is not part of its tokens."""
    handle, known = admission.handle, len(admission.tokens)
    if live:
        raise InvariantViolation(f"Row {handle} is admitted but has not been released.")
    if not 0 < admission.prompt_len <= known:
        raise InvariantViolation(f"Row {handle} has {known} tokens but a prompt of {admission.prompt_len}.")


def check_range(handle: int, computed: int | None, known: int, start: int, count: int, samples: bool) -> None:
    """Raise `InvariantViolation` unless a row with so many tokens computed and known can do what a plan asks."""
    end = start + count
    if computed is not None and start != computed:
        raise InvariantViolation(f"Row {handle} starts at {start}, but {computed} of its tokens are computed.")
    if start < 0 or count < 1 or end > known:
        raise InvariantViolation(f"Row {handle} computes {count} tokens from {start}, but knows {known} in all.")
    if samples and end != known:
        raise InvariantViolation(f"Row {handle} samples token {end}, but {known} of its tokens are known.")
