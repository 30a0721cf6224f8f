"""The operations in compiled kernels (see kernels/src): float32 and bfloat16 on processors with AVX-512.

Every number of a result is computed in one order, whatever else is in the batch: equal rows give equal bits.
"""

from __future__ import annotations

from collections.abc import Sequence
from types import ModuleType
from typing import TYPE_CHECKING, Any

import torch

from pellucid.ops.base import Decoder, Gated, Heads, Layer, Linear, Ops, Vocabulary
from pellucid.ops.matrix import GROUP, Matrix, Quantised, alike, numbers, stacked
from pellucid.ops.plain import PlainGated, PlainLinear, PlainVocabulary
from pellucid.pages import Arena

if TYPE_CHECKING:
    from pellucid.attention import AttentionBackend, KVStorage, StepLayout

PANEL = 32
"""Outputs that are packed, and computed, together."""

DENSE = {torch.float32: 0, torch.bfloat16: 1}
QUANTISED = {"q4_0": 2, "q4_1": 2, "q8_0": 3}
FLOAT, OWN, ADDED, GATED = range(4)


class Packed:
    """Matrices [out, in] of one shape and kind whose panels take turns, in the order in which a product reads them."""

    def __init__(self, kernels: ModuleType, arena: Arena, matrices: Sequence[Matrix]) -> None:
        first = matrices[0]
        width, self.depth = first.shape
        self.width = width * len(matrices)
        self.kind = QUANTISED[first.kind] if isinstance(first, Quantised) else DENSE[first.dtype]
        panels = -(-width // PANEL) * len(matrices)
        self.data = arena.take(panels * kernels.panel_bytes(self.kind, self.depth))
        for index, matrix in enumerate(matrices):
            source = (matrix.rows if isinstance(matrix, Quantised) else matrix).contiguous()
            least = isinstance(matrix, Quantised) and matrix.kind == "q4_1"
            where = (self.data.data_ptr(), index, len(matrices))
            kernels.pack(self.kind, source.data_ptr(), least, width, self.depth, *where)
        self._kernels = kernels
        self._address = self.data.data_ptr()

    @staticmethod
    def takes(matrix: Matrix) -> bool:
        """Whether this matrix can be packed: numbers in pairs, or groups."""
        return matrix.shape[1] % (GROUP if isinstance(matrix, Quantised) else 2) == 0

    @property
    def nbytes(self) -> int:
        return self.data.nbytes

    def described(self) -> tuple[int, ...]:
        """Kind, address, outputs and inputs."""
        return self.kind, self._address, self.width, self.depth

    def multiply(self, x: torch.Tensor, out: torch.Tensor, into: int, bias: int = 0) -> torch.Tensor:
        """Write the product of ``x`` [T, in] to ``out``; the numbers of a row lie side by side in both."""
        source, target = (x.data_ptr(), x.stride(0), len(x)), (out.data_ptr(), out.stride(0), into)
        self._kernels.product(self.kind, *source, self._address, self.width, self.depth, *target, bias)
        return out

    def rows(self, ids: torch.Tensor, out: torch.Tensor) -> torch.Tensor:
        """Write the rows ``ids`` ([T] int64) to ``out`` [T, in]: float32 for float32 weights, else bfloat16."""
        ids = ids.contiguous()
        self._kernels.unpack_rows(self.kind, self._address, self.depth, ids.data_ptr(), len(ids), out.data_ptr())
        return out


class CompiledLinear:
    def __init__(self, packed: Packed, bias: torch.Tensor | None) -> None:
        self._packed = packed
        self._bias = None if bias is None else bias.float()
        self._bias_address = 0 if self._bias is None else self._bias.data_ptr()
        self.nbytes = packed.nbytes + (0 if bias is None else bias.nbytes)

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        out = torch.empty((len(x), self._packed.width), dtype=x.dtype)
        return self._packed.multiply(x, out, OWN, self._bias_address)

    def add_to(self, residual: torch.Tensor, x: torch.Tensor) -> None:
        self._packed.multiply(x, residual, ADDED, self._bias_address)

    def described(self) -> tuple[int, ...]:
        """Kind, address, outputs, inputs and address of the bias."""
        return (*self._packed.described(), self._bias_address)


class CompiledVocabulary:
    """One packing for both ends of the model: an embedding is unpacked from it."""

    def __init__(self, packed: Packed, dtype: torch.dtype) -> None:
        self._packed, self._dtype = packed, dtype
        self.nbytes = packed.nbytes

    def rows(self, ids: torch.Tensor) -> torch.Tensor:
        return self._packed.rows(ids, torch.empty((len(ids), self._packed.depth), dtype=self._dtype))

    def scores(self, hidden: torch.Tensor) -> torch.Tensor:
        return self._packed.multiply(hidden, torch.empty((len(hidden), self._packed.width)), FLOAT)


class CompiledGated:
    def __init__(self, packed: Packed) -> None:
        self._packed = packed
        self.nbytes = packed.nbytes

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        out = torch.empty((len(x), self._packed.width // 2), dtype=x.dtype)
        return self._packed.multiply(x, out, GATED)

    def described(self) -> tuple[int, ...]:
        """As those of `CompiledLinear`; there is no bias."""
        return (*self._packed.described(), 0)


class CompiledDecoder:
    """Every layer in one call of the kernels: the same products, norms and attention as one by one, bit for bit."""

    attention = "compiled"

    def __init__(self, kernels: ModuleType, layers: Sequence[Layer], heads: Heads, eps: float, *, half: bool) -> None:
        self._kernels, self._layers, self._heads, self._eps, self._half = kernels, layers, heads, eps, half
        size = kernels.layer_bytes()
        self._described = torch.empty(len(layers) * size, dtype=torch.uint8)
        for index, layer in enumerate(layers):
            norms = (layer.input_norm, layer.mlp_norm, layer.q_norm, layer.k_norm)
            addresses = [0 if norm is None else norm.data_ptr() for norm in norms]
            matrices: tuple[Any, ...] = (layer.qkv, layer.output, layer.gate_up, layer.down)
            where = self._described.data_ptr() + index * size
            kernels.describe_layer(where, *addresses, *(field for m in matrices for field in m.described()))

    def __call__(
        self,
        x: torch.Tensor,
        cos: torch.Tensor,
        sin: torch.Tensor,
        kv: KVStorage,
        layout: StepLayout,
        attention: AttentionBackend,
        wanted: torch.Tensor | None = None,
    ) -> torch.Tensor:
        k, v = kv.layer_addresses(0)
        self._kernels.decode(
            self._half,
            self._described.data_ptr(),
            len(self._layers),
            x.data_ptr(),
            x.shape[1],
            cos.data_ptr(),
            sin.data_ptr(),
            k,
            (v - k) // x.element_size(),
            layout.slots.data_ptr(),
            layout.query_start.data_ptr(),
            layout.context_lens.data_ptr(),
            layout.block_tables.data_ptr(),
            layout.block_tables.stride(0),
            len(x),
            len(layout.context_lens),
            kv.block_size,
            *self._heads,
            self._eps,
        )
        return x if wanted is None else x[wanted]


class CompiledOps(Ops):
    name = "compiled"
    batch_invariant = True

    def __init__(self, dtype: torch.dtype, kernels: ModuleType, why: str = "") -> None:
        super().__init__(dtype, why)
        self._kernels = kernels
        self._arena = Arena()
        self._half = dtype is torch.bfloat16
        kernels.set_threads(torch.get_num_threads())

    def linear(self, parts: Sequence[Matrix], bias: torch.Tensor | None = None) -> Linear:
        matrix = self._own(stacked(parts))
        if not Packed.takes(matrix):
            return PlainLinear(matrix, bias, self.dtype)
        return CompiledLinear(Packed(self._kernels, self._arena, [matrix]), bias)

    def gated(self, gate: Matrix, up: Matrix) -> Gated:
        parts = [gate, up] if alike([gate, up]) else [numbers(gate), numbers(up)]
        parts = [self._own(part) for part in parts]
        if not all(map(Packed.takes, parts)):
            return PlainGated(PlainLinear(stacked(parts), None, self.dtype))
        return CompiledGated(Packed(self._kernels, self._arena, parts))

    def vocabulary(self, matrix: Matrix) -> Vocabulary:
        matrix = self._own(matrix)
        if not Packed.takes(matrix):
            return PlainVocabulary(matrix, self.dtype)
        return CompiledVocabulary(Packed(self._kernels, self._arena, [matrix]), self.dtype)

    def rms_norm(self, x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
        rows = x.reshape(-1, x.shape[-1])
        out = torch.empty_like(rows)
        place = (rows.data_ptr(), rows.stride(0), weight.data_ptr(), out.data_ptr(), out.stride(0))
        self._kernels.rms_norm(self._half, *place, *rows.shape, eps)
        return out.view(x.shape)

    def rotate(self, heads: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> None:
        self._kernels.rotate(
            self._half, heads.data_ptr(), heads.stride(0), *heads.shape, cos.data_ptr(), sin.data_ptr()
        )

    def decoder(self, layers: Sequence[Layer], heads: Heads, eps: float) -> Decoder | None:
        parts = [part for layer in layers for part in (layer.qkv, layer.output, layer.gate_up, layer.down)]
        if not all(isinstance(part, CompiledLinear | CompiledGated) for part in parts):
            return None
        return CompiledDecoder(self._kernels, layers, heads, eps, half=self._half)

    def _own(self, matrix: Matrix) -> Matrix:
        """As it will be packed: the kernels multiply quantised weights with bfloat16 numbers only."""
        return matrix if self._half and isinstance(matrix, Quantised) else numbers(matrix).to(self.dtype)
