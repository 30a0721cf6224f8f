"""Token and block tables of all rows, on the model's device."""

from __future__ import annotations

import torch

from pellucid.errors import InvariantViolation
from pellucid.plan import StepPlan
from pellucid.runtime.rows import Row, Rows


class Tables:
    """Two tables with a line per row: ``tokens`` [lines, length] int64 and ``blocks`` [lines, width] int32.

    They stay on the device and are changed by differences only, so that a step moves a few numbers
    and a sampled token never has to visit the host. Both double when they are full; unused entries
    of ``blocks`` are 0, the reserved block.
    """

    def __init__(self, num_blocks: int, device: torch.device) -> None:
        self.tokens = torch.zeros(1, 1, dtype=torch.int64, device=device)
        self.blocks = torch.zeros(1, 1, dtype=torch.int32, device=device)
        self._num_blocks = num_blocks
        self._lengths: list[int] = []

    def length(self, row: Row) -> int:
        """Blocks in the table of ``row``."""
        return self._lengths[row.index]

    def apply(self, plan: StepPlan, rows: Rows) -> None:
        """Write the tokens that ``plan`` admits, replace the blocks that it moves and append its new ones.

        Raises `InvariantViolation` for a block that no request may hold: the reserved one, or one
        outside the pool.
        """
        for admission in plan.admitted:
            index = rows[admission.handle].index
            self._lengths.extend([0] * (index + 1 - len(self._lengths)))
            self._lengths[index] = 0
            self.tokens = with_room(self.tokens, index + 1, len(admission.tokens))
            self.tokens[index, : len(admission.tokens)] = torch.tensor(admission.tokens)
            self.blocks = with_room(self.blocks, index + 1, 1)
            self.blocks[index] = 0
        for block, to in plan.moves:
            check_move(block, to, self._num_blocks)
            self.blocks[self.blocks == block] = to
        entries = [entry for handle, blocks in plan.new_blocks for entry in self._append(rows[handle], blocks)]
        if entries:
            lines, columns, ids = torch.tensor(entries, device=self.blocks.device).unbind(1)
            self.blocks = with_room(self.blocks, 1, max(self._lengths))
            self.blocks[lines, columns] = ids.int()

    def _append(self, row: Row, blocks: tuple[int, ...]) -> list[tuple[int, int, int]]:
        for block in blocks:
            check_block(block, self._num_blocks, f"Row {row.handle} is given block {block}")
        first = self._lengths[row.index]
        self._lengths[row.index] += len(blocks)
        return [(row.index, first + i, block) for i, block in enumerate(blocks)]

    def append_tokens(self, rows: list[Row], tokens: torch.Tensor) -> None:
        """Write the token [len(rows)] that each of ``rows`` sampled as its newest one."""
        newest = [row.known - 1 for row in rows]
        self.tokens = with_room(self.tokens, 1, max(newest) + 1)
        lines, columns = torch.tensor([[row.index for row in rows], newest], device=tokens.device)
        self.tokens[lines, columns] = tokens


def check_block(block: int, num_blocks: int, what: str) -> None:
    """Raise `InvariantViolation`, saying ``what`` happens, if no request may hold ``block``."""
    if not 0 < block < num_blocks:
        raise InvariantViolation(f"{what}; a pool of {num_blocks} hands out 1 to {num_blocks - 1}.")


def check_move(block: int, to: int, num_blocks: int) -> None:
    """Raise `InvariantViolation` if no request may hold ``block`` or ``to``."""
    check_block(block, num_blocks, f"A move goes from block {block}")
    check_block(to, num_blocks, f"Block {block} is moved to block {to}")


def check_room(handle: int, blocks: int, block_size: int, end: int) -> None:
    """Raise `InvariantViolation` if so many ``blocks`` do not hold the row's tokens up to ``end``."""
    if blocks * block_size < end:
        raise InvariantViolation(
            f"Row {handle} computes up to token {end}, but its {blocks} blocks "
            f"of {block_size} hold {blocks * block_size}."
        )


def with_room(table: torch.Tensor, lines: int, columns: int) -> torch.Tensor:
    """``table`` itself if it has so many lines and columns, else a copy with what is short at least doubled."""
    shape = [
        have if have >= need else max(need, 2 * have) for have, need in zip(table.shape, (lines, columns), strict=True)
    ]
    if shape == list(table.shape):
        return table
    bigger = table.new_zeros(shape)
    bigger[: table.shape[0], : table.shape[1]] = table
    return bigger
