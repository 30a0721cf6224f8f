"""Token and block tables of all lines, on the device, allocated once."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from pellucid.errors import InvariantViolation
from pellucid.plan import Admission, StepPlan
from pellucid.runtime.lines import Lines, Numbers, Ranges
from pellucid.runtime.tables import check_block, check_move, check_room


class Appended(NamedTuple):
    """Blocks that a plan appends, as entries [n] of the flat block table: which place gets which block."""

    places: Numbers
    blocks: Numbers


NOTHING_APPENDED = Appended(np.zeros(0, np.int32), np.zeros(0, np.int32))


class DeviceTables:
    """``blocks`` [lines, width], width for max_model_len, and ``tokens`` [lines, width * block_size + 1], both int32.

    They change by differences only, without the host ever waiting: everything is queued on the current stream. What
    lies behind a request's last token or block is left over from whoever had the line before, and is never read.
    """

    def __init__(
        self, lines: int, max_model_len: int, block_size: int, num_blocks: int, device: torch.device | str
    ) -> None:
        self.width = -(-max_model_len // block_size)
        self.block_size = block_size
        self.lengths = np.zeros(lines, np.int32)
        """Blocks in each line."""
        self.tokens = torch.zeros(lines, self.width * block_size + 1, dtype=torch.int32, device=device)
        self.blocks = torch.zeros(lines, self.width, dtype=torch.int32, device=device)
        self._lines = self.tokens.unbind()
        self._num_blocks = num_blocks

    @staticmethod
    def bytes_per_line(max_model_len: int, block_size: int) -> int:
        """Bytes that one line takes, with its copy of the block table among the inputs of a step."""
        width = -(-max_model_len // block_size)
        return 4 * (width * block_size + 1) + 2 * 4 * width

    def admit(self, admitted: Sequence[Admission], lines: Sequence[int]) -> None:
        """``lines`` are new requests': no blocks yet, and their tokens, which cross over to the device together."""
        counts = [len(admission.tokens) for admission in admitted]
        for admission, count in zip(admitted, counts, strict=True):
            if count >= self.tokens.shape[1]:
                raise InvariantViolation(
                    f"Row {admission.handle} comes with {count} tokens; "
                    f"the tables hold {self.tokens.shape[1] - 1} a row."
                )
        self.lengths[lines] = 0
        tokens = chain.from_iterable(admission.tokens for admission in admitted)
        sent = self._sent(np.fromiter(tokens, np.int32, sum(counts)))
        there = [self._lines[line].narrow(0, 0, count) for line, count in zip(lines, counts, strict=True)]
        torch._foreach_copy_(there, list(sent.split(counts)))

    def move(self, moves: tuple[tuple[int, int], ...]) -> None:
        """Replace blocks in every line that holds them, one (block, block in its place) after the other."""
        for block, to in moves:
            check_move(block, to, self._num_blocks)
            self.blocks.masked_fill_(self.blocks == block, to)

    def append(self, plan: StepPlan, lines: Lines) -> Appended:
        """Account for the new blocks of ``plan``. It is for the caller to write them: `write`, or the step's kernel."""
        places: list[int] = []
        ids: list[int] = []
        for handle, blocks in plan.new_blocks:
            line = lines[handle]
            length = int(self.lengths[line])
            if length + len(blocks) > self.width:
                raise InvariantViolation(
                    f"Row {handle} is given {len(blocks)} blocks besides its {length}; "
                    f"the tables hold {self.width} a row."
                )
            first = line * self.width + length
            places.extend(range(first, first + len(blocks)))
            ids.extend(blocks)
            self.lengths[line] += len(blocks)
        if ids and not 0 < min(ids) <= max(ids) < self._num_blocks:
            self._explain(plan)
        return Appended(np.array(places, np.int32), np.array(ids, np.int32)) if ids else NOTHING_APPENDED

    def write(self, appended: Appended) -> None:
        """Write new blocks now, in a launch of its own."""
        if len(appended.places):
            places = self._sent(appended.places.astype(np.int64))
            self.blocks.view(-1)[places] = self._sent(appended.blocks)

    def check_room(self, ranges: Ranges, plan: StepPlan) -> None:
        """Raise `InvariantViolation` for a row whose blocks do not hold the tokens that it computes."""
        short = self.lengths[ranges.lines] * self.block_size < ranges.ends
        if short.any():
            row = int(short.argmax())
            length = int(self.lengths[ranges.lines[row]])
            check_room(plan.handles[row], length, self.block_size, int(ranges.ends[row]))

    def _explain(self, plan: StepPlan) -> None:
        for handle, blocks in plan.new_blocks:
            for block in blocks:
                check_block(block, self._num_blocks, f"Row {handle} is given block {block}")

    def _sent(self, numbers: NDArray[np.signedinteger]) -> torch.Tensor:
        """``numbers`` on the device. torch keeps the pinned memory that they leave from until they have arrived."""
        host = torch.from_numpy(numbers)
        device = self.tokens.device
        return host.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else host
