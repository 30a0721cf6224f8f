"""A runner without a model: every token it "samples" is given beforehand. Needs neither torch nor numpy."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from pellucid.errors import InvariantViolation
from pellucid.plan import StepPlan, StepResult
from pellucid.runtime.flight import InFlight
from pellucid.runtime.rows import Row, Rows

ForcedOutputs = Mapping[str, Sequence[int]] | Callable[[str, int], int]

PAST_END = -1
"""What is "sampled" after the last forced token: no token, so that committing it shows at once."""


class ForcedRunner:
    """Runs plans as `pellucid.runtime.runner.Runner` does, with the same bookkeeping, but answers forced tokens.

    ``outputs`` maps a request's name to its output tokens, or is a function of (name, output index).
    One token past the end of a sequence is `PAST_END`: an asynchronous engine asks for it before it
    has seen that the last one stops the request, and drops it. Asking for more, or for an unknown
    name, raises `InvariantViolation`.
    """

    def __init__(self, outputs: ForcedOutputs) -> None:
        self._outputs = outputs
        self._rows = Rows()
        self._flying: InFlight[tuple[int, ...]] = InFlight()

    def launch(self, plan: StepPlan) -> None:
        """Take one more plan; at most two may be in flight."""
        self._flying.refuse_more(plan.step)
        self._rows.apply(plan)
        tokens = []
        for handle, start, count, samples in zip(plan.handles, plan.starts, plan.counts, plan.samples, strict=True):
            row = self._rows.advance(handle, start, count, samples)
            if samples:
                tokens.append(self._token(row, start + count - row.prompt_len))
        self._flying.put(plan.step, tuple(tokens))

    def collect(self) -> StepResult:
        """The result of the oldest plan in flight."""
        return StepResult(*self._flying.take())

    def _token(self, row: Row, index: int) -> int:
        if callable(self._outputs):
            return self._outputs(row.name, index)
        forced = self._outputs.get(row.name)
        if forced is None or index > len(forced):
            have = "none" if forced is None else len(forced)
            raise InvariantViolation(f"Request {row.name!r} samples output {index}; its forced tokens are {have}.")
        return forced[index] if index < len(forced) else PAST_END
