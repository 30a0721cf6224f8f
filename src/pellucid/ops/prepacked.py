"""Plain torch, but for weights that oneDNN has packed beforehand in the order in which it reads them."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from pellucid.ops.base import Linear, Vocabulary
from pellucid.ops.matrix import GROUP, Matrix, Quantised, numbers, stacked
from pellucid.ops.plain import PlainOps, PlainVocabulary

ROWS = 32
"""The batch that weights are packed for; others are computed as well, from the same packing."""

FOUR_BIT_OUTPUTS = 32
"""torch's 4-bit kernel takes matrices whose number of outputs is a multiple of this."""


class PrepackedLinear:
    def __init__(self, weight: torch.Tensor, bias: torch.Tensor | None) -> None:
        self._packed = torch.ops.mkldnn._reorder_linear_weight(weight, ROWS)
        self._bias = bias
        self.nbytes = weight.nbytes

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        product: torch.Tensor = torch.ops.mkldnn._linear_pointwise(x, self._packed, self._bias, "none", [], "")
        return product

    def add_to(self, residual: torch.Tensor, x: torch.Tensor) -> None:
        residual += self(x)


class FourBitLinear:
    """4-bit weights at their own size, for torch's kernel: its scales are bfloat16, and it counts from the middle."""

    def __init__(self, matrix: Quantised, bias: torch.Tensor | None) -> None:
        scale, least, q = matrix.parts()
        middle = least + 8 * scale  # what q = 8 stands for
        self._scales = torch.stack((scale.T, middle.T), -1).bfloat16().contiguous()
        self._packed = torch.ops.aten._convert_weight_to_int4pack_for_cpu(q.int(), 2)
        self._bias = bias
        self.nbytes = self._packed.nbytes + self._scales.nbytes

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        product: torch.Tensor = torch.ops.aten._weight_int4pack_mm_for_cpu(
            x.contiguous(), self._packed, GROUP, self._scales
        )
        return product if self._bias is None else product + self._bias

    def add_to(self, residual: torch.Tensor, x: torch.Tensor) -> None:
        residual += self(x)


class PrepackedVocabulary(PlainVocabulary):
    """The rows stay beside the packing: oneDNN's order is its own secret."""

    def __init__(self, matrix: Matrix) -> None:
        super().__init__(numbers(matrix).bfloat16(), torch.bfloat16)
        self._packed = PrepackedLinear(self._linear.weight, None)
        self.nbytes *= 2

    def scores(self, hidden: torch.Tensor) -> torch.Tensor:
        return self._packed(hidden).float()


class PrepackedOps(PlainOps):
    """For bfloat16 on a processor for which oneDNN has kernels of that type."""

    name = "onednn"

    @staticmethod
    def available() -> bool:
        return bool(torch.backends.mkldnn.enabled) and bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())

    def linear(self, parts: Sequence[Matrix], bias: torch.Tensor | None = None) -> Linear:
        matrix = stacked(parts)
        if isinstance(matrix, Quantised) and matrix.kind != "q8_0" and matrix.shape[0] % FOUR_BIT_OUTPUTS == 0:
            return FourBitLinear(matrix, bias)
        return PrepackedLinear(numbers(matrix).to(self.dtype), bias)

    def vocabulary(self, matrix: Matrix) -> Vocabulary:
        return PrepackedVocabulary(matrix)
