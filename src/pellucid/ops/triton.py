"""The operations on a CUDA card: kernels in Triton, and cuBLAS where there are many rows to multiply."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from pellucid.ops.base import Decoder, Gated, Heads, Layer, Linear, Ops, Scores, Vocabulary
from pellucid.ops.matrix import Matrix, numbers, stacked
from pellucid.ops.triton_angles import angles
from pellucid.ops.triton_decoder import TritonDecoder, TritonLayer, folded, folds
from pellucid.ops.triton_matrix import TritonGated, TritonLinear, TritonVocabulary
from pellucid.ops.triton_norm import rms_norm
from pellucid.ops.triton_rope import rotate
from pellucid.triton_heads import Unturned
from pellucid.triton_launch import INTERPRETED


class TritonOps(Ops):
    """Quantised weights are held as numbers of the model's own type."""

    name = "triton"

    @staticmethod
    def missing(device: torch.device) -> str | None:
        """Why there are no kernels for ``device``; None if there are."""
        if device.type != "cuda" and not INTERPRETED:
            return f"they need an NVIDIA GPU, and the device is {device}"
        return None

    @staticmethod
    def card(device: torch.device) -> str:
        """What they run on, in words."""
        return torch.cuda.get_device_name(device) if device.type == "cuda" else "Triton's interpreter"

    def folded(self, norm: torch.Tensor, parts: Sequence[Matrix]) -> tuple[torch.Tensor, Sequence[Matrix]]:
        if not folds(self.dtype):
            return norm, parts
        return torch.ones_like(norm), [folded(self._own(part), norm) for part in parts]

    def linear(self, parts: Sequence[Matrix], bias: torch.Tensor | None = None) -> Linear:
        return TritonLinear(self._own(stacked(parts)), None if bias is None else bias.to(self.dtype).contiguous())

    def gated(self, gate: Matrix, up: Matrix) -> Gated:
        return TritonGated(self._own(stacked([gate, up])))

    def vocabulary(self, matrix: Matrix) -> Vocabulary:
        return TritonVocabulary(self._own(matrix))

    def rms_norm(self, x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
        return rms_norm(x, weight, eps)

    def wanted_scores(
        self, head: Vocabulary, x: torch.Tensor, norm: torch.Tensor, eps: float, wanted: torch.Tensor
    ) -> Scores:
        assert isinstance(head, TritonVocabulary)
        return head.wanted_scores(rms_norm(x, norm, eps), wanted)

    def angles(self, positions: torch.Tensor, frequencies: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return angles(positions, frequencies)

    def rotate(self, heads: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> None:
        tokens, count, dim = heads.shape
        packed = heads.as_strided((tokens, count * dim), (heads.stride(0), 1))
        rotate(Unturned(packed, cos, sin), Heads(count, 0, dim))

    def decoder(self, layers: Sequence[Layer], heads: Heads, eps: float) -> Decoder | None:
        return TritonDecoder([of_triton(layer) for layer in layers], heads, eps)

    def _own(self, matrix: Matrix) -> torch.Tensor:
        return numbers(matrix).to(self.dtype).contiguous()


def of_triton(layer: Layer) -> TritonLayer:
    """``layer``, which `TritonOps` made."""
    qkv, output, gate_up, down = layer.qkv, layer.output, layer.gate_up, layer.down
    assert isinstance(qkv, TritonLinear)
    assert isinstance(output, TritonLinear)
    assert isinstance(gate_up, TritonGated)
    assert isinstance(down, TritonLinear)
    norms = None if layer.q_norm is None or layer.k_norm is None else (layer.q_norm, layer.k_norm)
    return TritonLayer(layer.input_norm, qkv, norms, output, layer.mlp_norm, gate_up, down)
