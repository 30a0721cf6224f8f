"""The oracle: every operation in plain torch, on any device and in any floating type."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F

from pellucid.ops.base import Gated, Linear, Ops, Vocabulary
from pellucid.ops.matrix import Matrix, Quantised, numbers, stacked


class PlainLinear:
    """Quantised weights are held as float32 numbers and multiplied in float32: this is what others are compared to."""

    def __init__(self, matrix: Matrix, bias: torch.Tensor | None, dtype: torch.dtype) -> None:
        self.weight = numbers(matrix)
        if not isinstance(matrix, Quantised):
            self.weight = self.weight.to(dtype)
        self._bias = bias
        self.nbytes = self.weight.nbytes + (0 if bias is None else bias.nbytes)

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        bias = None if self._bias is None else self._bias.to(self.weight.dtype)
        return F.linear(x.to(self.weight.dtype), self.weight, bias).to(x.dtype)

    def add_to(self, residual: torch.Tensor, x: torch.Tensor) -> None:
        residual += self(x)


class PlainVocabulary:
    def __init__(self, matrix: Matrix, dtype: torch.dtype) -> None:
        self._linear = PlainLinear(matrix, None, dtype)
        self._dtype = dtype
        self.nbytes = self._linear.nbytes

    def rows(self, ids: torch.Tensor) -> torch.Tensor:
        return F.embedding(ids, self._linear.weight).to(self._dtype)

    def scores(self, hidden: torch.Tensor) -> torch.Tensor:
        return self._linear(hidden).float()


class PlainGated:
    def __init__(self, gate_up: Linear) -> None:
        self._gate_up = gate_up
        self.nbytes = gate_up.nbytes

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        gate, up = self._gate_up(x).chunk(2, dim=-1)
        return F.silu(gate) * up


class PlainOps(Ops):
    name = "torch"

    def linear(self, parts: Sequence[Matrix], bias: torch.Tensor | None = None) -> Linear:
        return PlainLinear(stacked(parts), bias, self.dtype)

    def gated(self, gate: Matrix, up: Matrix) -> Gated:
        return PlainGated(self.linear([gate, up]))

    def vocabulary(self, matrix: Matrix) -> Vocabulary:
        return PlainVocabulary(matrix, self.dtype)

    def rms_norm(self, x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
        """Cast back before the weight is applied, as Hugging Face does."""
        wide = x.float()
        wide = wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + eps)
        return weight * wide.to(x.dtype)

    def rotate(self, heads: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> None:
        cos, sin = cos.to(heads.dtype).unsqueeze(1), sin.to(heads.dtype).unsqueeze(1)
        first, second = heads.chunk(2, dim=-1)
        heads.copy_(torch.cat((first * cos - second * sin, second * cos + first * sin), dim=-1))
