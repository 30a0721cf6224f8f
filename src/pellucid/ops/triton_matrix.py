"""Weight matrices as the kernels read them, [out, in]: few input rows go to Triton, many to cuBLAS."""

from __future__ import annotations

import torch
import torch.nn.functional as F

from pellucid.ops.base import Scores
from pellucid.ops.triton_embedding import rows
from pellucid.ops.triton_gate import gated
from pellucid.ops.triton_matmul import gated_product, product
from pellucid.ops.triton_norm import rms_norm
from pellucid.ops.triton_tiles import LEAST_COLUMNS, NARROW, ROWS, tile_for
from pellucid.ops.triton_vocabulary import part_for, vocabulary_scores
from pellucid.triton_bulk import roomy
from pellucid.triton_heads import Unscaled

MOST_UNSCALED = 256
"""Rows: with more, to look at each of them again for its factor costs more than a kernel that norms them."""


def unscaled(weight: torch.Tensor, x: torch.Tensor, eps: float | None) -> Unscaled | None:
    """``x``, if cuBLAS is to multiply it with ``weight`` as it is, though it should be normed: see `Unscaled`."""
    if eps is None or len(x) > MOST_UNSCALED or tile_for(weight, len(x)):
        return None
    return Unscaled(x, eps)


class TritonLinear:
    def __init__(self, weight: torch.Tensor, bias: torch.Tensor | None) -> None:
        self.weight, self.bias = weight, bias
        self.nbytes = weight.nbytes + (0 if bias is None else bias.nbytes)

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        return self.normed(x, None)

    def normed(self, x: torch.Tensor, eps: float | None, *, late: bool = False) -> torch.Tensor:
        """The product of what RMSNorm without weights, if there is an ``eps``, makes of ``x``.

        ``late``: the next kernel may start once this one has its input, and not at once.
        """
        if tile_for(self.weight, len(x)) is None:
            return F.linear(x if eps is None else rms_norm(x, None, eps), self.weight, self.bias)
        out = torch.empty((len(x), len(self.weight)), dtype=x.dtype, device=x.device)
        product(x, self.weight, out, eps=eps, bias=self.bias, late=late)
        return out

    def add_to(self, residual: torch.Tensor, x: torch.Tensor, counters: torch.Tensor | None = None) -> None:
        """``counters``: as many as `most_counters` says, int32, of a step; 0 whenever no kernel is at work."""
        if tile_for(self.weight, len(x)):
            product(x, self.weight, residual, bias=self.bias, add=True, arrived=counters)
            return
        residual.addmm_(x, self.weight.T)
        if self.bias is not None:
            residual += self.bias


def most_counters(*matrices: TritonLinear) -> int:
    """How many counters are enough for any of ``matrices``: inputs are shared out for up to `NARROW` rows only."""
    return max(-(-len(matrix.weight) // LEAST_COLUMNS) * (NARROW // ROWS[1]) for matrix in matrices)


class TritonGated:
    def __init__(self, weight: torch.Tensor) -> None:
        self.weight = weight
        self.nbytes = weight.nbytes

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        return self.normed(x, None)

    def normed(self, x: torch.Tensor, eps: float | None) -> torch.Tensor:
        """As that of `TritonLinear`, gated."""
        if rows := unscaled(self.weight, x, eps):
            return gated(F.linear(x, self.weight), rows)
        if tile_for(self.weight, len(x)) is None:
            return gated(F.linear(x if eps is None else rms_norm(x, None, eps), self.weight))
        out = roomy((len(x), len(self.weight) // 2), x)
        gated_product(x, self.weight, out, eps=eps)
        return out


class TritonVocabulary:
    def __init__(self, weight: torch.Tensor) -> None:
        self.weight = weight
        self.nbytes = weight.nbytes

    def rows(self, ids: torch.Tensor) -> torch.Tensor:
        return rows(ids, self.weight)

    def scores(self, hidden: torch.Tensor) -> torch.Tensor:
        if part := part_for(self.weight, len(hidden)):
            return vocabulary_scores(hidden, self.weight, part).logits
        if tile_for(self.weight, len(hidden)):
            out = torch.empty((len(hidden), len(self.weight)), dtype=torch.float32, device=hidden.device)
            product(hidden, self.weight, out)
            return out
        if hidden.is_cuda and hidden.dtype is not torch.float32:
            return torch.mm(hidden, self.weight.T, out_dtype=torch.float32)
        return F.linear(hidden.float(), self.weight.float())

    def wanted_scores(self, hidden: torch.Tensor, wanted: torch.Tensor) -> Scores:
        """As `Ops.wanted_scores` says, of normed rows."""
        if part := part_for(self.weight, len(hidden)):
            return vocabulary_scores(hidden, self.weight, part, wanted)
        return Scores(self.scores(hidden), None)
