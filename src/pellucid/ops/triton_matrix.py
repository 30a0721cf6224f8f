"""Weight matrices as the kernels read them, [out, in]: few input rows go to Triton, many to cuBLAS."""

from __future__ import annotations

import torch
import torch.nn.functional as F

from pellucid.ops.triton_embedding import rows
from pellucid.ops.triton_gate import gated
from pellucid.ops.triton_matmul import gated_product, product
from pellucid.ops.triton_norm import NormedRows, rms_norm
from pellucid.ops.triton_tiles import tile_for


class TritonLinear:
    def __init__(self, weight: torch.Tensor, bias: torch.Tensor | None) -> None:
        self.weight, self.bias = weight, bias
        self.nbytes = weight.nbytes + (0 if bias is None else bias.nbytes)
        self._arrived = torch.zeros(-(-len(weight) // 16), dtype=torch.int32, device=weight.device)

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        return self.normed(x, None, 0.0)

    def normed(self, x: torch.Tensor, norm: torch.Tensor | None, eps: float) -> torch.Tensor:
        """The product of what RMSNorm, if there is a ``norm``, makes of ``x``."""
        if tile_for(self.weight, len(x)) is None:
            return F.linear(x if norm is None else rms_norm(x, norm, eps), self.weight, self.bias)
        out = torch.empty((len(x), len(self.weight)), dtype=x.dtype, device=x.device)
        product(x, self.weight, out, norm=norm, eps=eps, bias=self.bias, arrived=self._arrived)
        return out

    def add_to(self, residual: torch.Tensor, x: torch.Tensor) -> None:
        self.add_before(residual, x, None)

    def add_before(
        self, residual: torch.Tensor, x: torch.Tensor, next_norm: torch.Tensor | None
    ) -> torch.Tensor | None:
        """Add the product of ``x`` to ``residual``; make what that is, times ``next_norm``, on the way, if it is free.

        None if it is not. What RMSNorm makes of the residual is that, but for a factor of each row.
        """
        if tile_for(self.weight, len(x)):
            return product(
                x, self.weight, residual, bias=self.bias, add=True, next_norm=next_norm, arrived=self._arrived
            )
        residual.addmm_(x, self.weight.T)
        if self.bias is not None:
            residual += self.bias
        return None


class TritonGated:
    def __init__(self, weight: torch.Tensor) -> None:
        self.weight = weight
        self.nbytes = weight.nbytes

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        return self.normed(x, None, 0.0)

    def normed(self, x: torch.Tensor, norm: torch.Tensor | None, eps: float) -> torch.Tensor:
        """As that of `TritonLinear`, gated."""
        if tile_for(self.weight, len(x)) is None:
            return gated(F.linear(x if norm is None else rms_norm(x, norm, eps), self.weight))
        out = torch.empty((len(x), len(self.weight) // 2), dtype=x.dtype, device=x.device)
        gated_product(x, self.weight, out, norm=norm, eps=eps)
        return out

    def of(self, rows: NormedRows) -> torch.Tensor:
        """`normed`, of rows that may be weighted already."""
        if rows.weighted is None:
            return self.normed(rows.x, rows.norm, rows.eps)
        return gated(F.linear(rows.weighted, self.weight), rows)


class TritonVocabulary:
    def __init__(self, weight: torch.Tensor) -> None:
        self.weight = weight
        self.nbytes = weight.nbytes

    def rows(self, ids: torch.Tensor) -> torch.Tensor:
        return rows(ids, self.weight)

    def scores(self, hidden: torch.Tensor) -> torch.Tensor:
        return self.normed(hidden, None, 0.0)

    def normed(self, hidden: torch.Tensor, norm: torch.Tensor | None, eps: float) -> torch.Tensor:
        """The scores of what RMSNorm, if there is a ``norm``, makes of ``hidden``."""
        if tile_for(self.weight, len(hidden)):
            out = torch.empty((len(hidden), len(self.weight)), dtype=torch.float32, device=hidden.device)
            product(hidden, self.weight, out, norm=norm, eps=eps)
            return out
        hidden = hidden if norm is None else rms_norm(hidden, norm, eps)
        if hidden.is_cuda and hidden.dtype is not torch.float32:
            return torch.mm(hidden, self.weight.T, out_dtype=torch.float32)
        return F.linear(hidden.float(), self.weight.float())
