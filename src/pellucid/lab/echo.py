"""An executor without a model. Its tokens depend on every slot they read, so a wrong block shows in the output."""

from __future__ import annotations

from pellucid.plan import StepPlan, StepResult
from pellucid.runtime.flight import InFlight
from pellucid.runtime.rows import Rows

VOCAB_SIZE = 260
EOS = 7


class Echo:
    """A KV memory of hashes: what a position writes depends on its token and on all that its table lets it read.

    Rows run one after the other, as the order of a plan allows: who shares a block stands behind who fills it.
    """

    def __init__(self, block_size: int) -> None:
        self._block_size = block_size
        self._slots: dict[tuple[int, int], int] = {}
        self._rows = Rows()
        self._tokens: dict[int, list[int]] = {}  # by handle
        self._tables: dict[int, list[int]] = {}
        self._flying: InFlight[tuple[int, ...]] = InFlight()

    def launch(self, plan: StepPlan) -> None:
        """Take one more plan and run it; at most two may be in flight."""
        self._flying.refuse_more(plan.step)
        self._rows.apply(plan)
        for handle in plan.released:
            del self._tokens[handle], self._tables[handle]
        for admission in plan.admitted:
            self._tokens[admission.handle] = list(admission.tokens)
            self._tables[admission.handle] = []
        for block, to in plan.moves:
            for table in self._tables.values():
                table[:] = [to if each == block else each for each in table]
        for handle, blocks in plan.new_blocks:
            self._tables[handle] += blocks
        for block, to in plan.copies:
            for offset in range(self._block_size):
                self._slots[to, offset] = self._slots.get((block, offset), 0)
        sampled = []
        for handle, start, count, samples in zip(plan.handles, plan.starts, plan.counts, plan.samples, strict=True):
            self._rows.advance(handle, start, count, samples)
            last = self._compute(handle, start, start + count)
            if samples:
                sampled.append(last % 64)
                self._tokens[handle].append(sampled[-1])
        self._flying.put(plan.step, tuple(sampled))

    def collect(self) -> StepResult:
        """The result of the oldest plan in flight."""
        return StepResult(*self._flying.take())

    def _compute(self, handle: int, start: int, end: int) -> int:
        tokens, table, size = self._tokens[handle], self._tables[handle], self._block_size
        places = [(table[position // size], position % size) for position in range(end)]
        seen = [self._slots.get(place, 0) for place in places[:start]]
        for position in range(start, end):
            seen.append(hash((tokens[position], *seen)))
            self._slots[places[position]] = seen[-1]
        return seen[-1]
