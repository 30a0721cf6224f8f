"""A weight matrix as a checkpoint has it: numbers, or quantised numbers kept as they are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch

GROUP = 32
"""Neighbouring weights of a row that share a scale, in all kinds below."""


@dataclass(frozen=True, eq=False)
class Quantised:
    """Rows of quantised weights, as GGUF stores them.

    Each group of 32 weights of a row is a float16 ``scale``, for q4_1 a float16 ``least`` after it, then
    32 numbers q: 4 bits each, the first half of the group in the low halves of 16 bytes, or int8. A weight
    is ``scale · (q - 8)`` (q4_0), ``scale · q + least`` (q4_1) or ``scale · q`` (q8_0).
    (The format: ggml's ``block_q4_0``, ``block_q4_1`` and ``block_q8_0``.)
    """

    kind: Literal["q4_0", "q4_1", "q8_0"]
    rows: torch.Tensor
    """[out, bytes of a row] uint8."""

    @property
    def shape(self) -> tuple[int, int]:
        """[out, in]."""
        out, row = self.rows.shape
        return out, row // GROUP_BYTES[self.kind] * GROUP

    @property
    def nbytes(self) -> int:
        return self.rows.nbytes

    def parts(self) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """scale and least, float32 [out, in / 32], and q, [out, in], so that a weight is ``scale · q + least``."""
        groups = self.rows.view(len(self.rows), -1, GROUP_BYTES[self.kind])

        def half_floats(at: int) -> torch.Tensor:
            return groups[..., at : at + 2].contiguous().view(torch.float16).float().squeeze(-1)

        scale = half_floats(0)
        if self.kind == "q8_0":
            return scale, torch.zeros_like(scale), groups[..., 2:].contiguous().view(torch.int8).flatten(1)
        packed = groups[..., -GROUP // 2 :]
        q = torch.cat((packed & 15, packed >> 4), -1).flatten(1)
        return scale, half_floats(2) if self.kind == "q4_1" else -8 * scale, q

    def dense(self) -> torch.Tensor:
        """The weights as numbers: float32 [out, in]."""
        scale, least, q = self.parts()
        groups = q.view(*scale.shape, GROUP)
        if self.kind == "q4_1":
            return (scale.unsqueeze(-1) * groups + least.unsqueeze(-1)).flatten(1)
        return (scale.unsqueeze(-1) * (groups.float() - 8 if self.kind == "q4_0" else groups)).flatten(1)


GROUP_BYTES = {"q4_0": 18, "q4_1": 20, "q8_0": 34}

Matrix = torch.Tensor | Quantised
"""[out, in]."""


def alike(parts: Sequence[Matrix]) -> bool:
    """Whether all of ``parts`` are numbers, or all are quantised in the same way."""
    return len({part.kind if isinstance(part, Quantised) else None for part in parts}) == 1


def stacked(parts: Sequence[Matrix]) -> Matrix:
    """The rows of ``parts`` in one matrix: numbers, unless all of them are quantised in the same way."""
    if len(parts) == 1:
        return parts[0]
    first = parts[0]
    if isinstance(first, Quantised) and alike(parts):
        return Quantised(first.kind, torch.cat([part.rows for part in parts]))  # type: ignore[union-attr]
    return torch.cat([numbers(part) for part in parts])


def numbers(matrix: Matrix) -> torch.Tensor:
    """``matrix`` as numbers, float32 if it is quantised."""
    return matrix.dense() if isinstance(matrix, Quantised) else matrix
