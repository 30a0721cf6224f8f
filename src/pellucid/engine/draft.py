"""A step plan while it is being made: the one place where it can still change."""

from __future__ import annotations

from pellucid.engine.sequence import Sequence
from pellucid.plan.step import Admission, StepPlan


class Draft:
    """Rows collect here until the whole step is decided; a victim's row can be struck out again."""

    def __init__(self, step: int, budget: int) -> None:
        self.step = step
        self.budget = budget
        self.sequences: list[Sequence] = []
        self.starts: list[int] = []
        self.counts: list[int] = []
        self.samples: list[bool] = []
        self.admitted: list[Admission] = []
        self.new_blocks: dict[int, tuple[int, ...]] = {}
        self.pressed = False  # a running request wanted blocks that were not there: nobody is admitted

    def schedule(self, sequence: Sequence, start: int, count: int, blocks: tuple[int, ...]) -> None:
        """Add a row that computes ``count`` tokens from ``start`` on, in ``blocks`` besides those it has."""
        samples = start + count == sequence.horizon
        if samples:
            sequence.horizon += 1
        self.sequences.append(sequence)
        self.starts.append(start)
        self.counts.append(count)
        self.samples.append(samples)
        if blocks:
            self.new_blocks[sequence.handle] = blocks
        self.budget -= count

    def admit(self, sequence: Sequence) -> None:
        self.admitted.append(
            Admission(
                sequence.handle,
                sequence.name,
                tuple(sequence.tokens),
                sequence.prompt_len,
                sequence.request.sampling,
            )
        )

    def strike(self, sequence: Sequence) -> None:
        """Take ``sequence``'s row out, if it has one, and give its tokens back to the budget."""
        if sequence not in self.sequences:
            return
        row = self.sequences.index(sequence)
        self.budget += self.counts[row]
        sequence.horizon -= self.samples[row]
        for column in (self.sequences, self.starts, self.counts, self.samples):
            del column[row]
        self.new_blocks.pop(sequence.handle, None)

    def plan(self, released: list[int], moves: list[tuple[int, int]]) -> StepPlan:
        return StepPlan(
            step=self.step,
            released=tuple(released),
            admitted=tuple(self.admitted),
            new_blocks=tuple(self.new_blocks.items()),
            copies=tuple(moves),
            handles=tuple([sequence.handle for sequence in self.sequences]),
            starts=tuple(self.starts),
            counts=tuple(self.counts),
            samples=tuple(self.samples),
            moves=tuple(moves),
        )
