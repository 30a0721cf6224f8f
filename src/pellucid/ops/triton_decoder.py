"""All layers of a decoder, five kernels each for few rows: nothing goes to memory that the next product could take."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, Protocol, cast

import torch
import torch.nn.functional as F

from pellucid.ops.base import Heads
from pellucid.ops.triton_matrix import TritonGated, TritonLinear, most_counters, unscaled
from pellucid.ops.triton_norm import rms_norm
from pellucid.ops.triton_rope import rotate, rotated_product
from pellucid.ops.triton_tiles import tile_for

if TYPE_CHECKING:
    from pellucid.attention import AttentionBackend, KVStorage, StepLayout


class Planned(Protocol):
    """What attention makes once a step. ``counters``, as many as asked for, int32, are 0, for others that need some."""

    @property
    def counters(self) -> torch.Tensor: ...


class Attends(Protocol):
    """The half of attention that comes after K and V have been written."""

    def plan(self, q: torch.Tensor, kv: KVStorage, layout: StepLayout, counters: int) -> Planned:
        """What `attend` needs to know in every layer of a step; ``q`` is only asked for its sizes and type."""

    def attend(
        self,
        layer: int,
        q: torch.Tensor,
        kv: KVStorage,
        layout: StepLayout,
        out: torch.Tensor,
        plan: Planned,
    ) -> None:
        """Write the attention of ``q`` [T, H, D], its heads side by side, to ``out`` [T, H, D]; padding to zeros.

        ``plan`` may be read before the kernel before this one has ended, so one must lie between the two that awaits
        what made the plan before it lets the next start: those that turn queries and keys do.
        """


class TritonLayer(NamedTuple):
    """`pellucid.ops.Layer`, its matrices those of `TritonOps`."""

    input_norm: torch.Tensor
    qkv: TritonLinear
    norms: tuple[torch.Tensor, torch.Tensor] | None
    output: TritonLinear
    mlp_norm: torch.Tensor
    gate_up: TritonGated
    down: TritonLinear


class TritonDecoder:
    """The layers one after the other, without a word to the host: only sizes are asked for, so it can be captured."""

    attention = "triton"

    def __init__(self, layers: Sequence[TritonLayer], heads: Heads, eps: float) -> None:
        self._layers, self._heads, self._eps = layers, heads, eps
        self._counters = most_counters(*(matrix for layer in layers for matrix in (layer.output, layer.down)))

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
        attends = cast("Attends", attention)  # as its name says
        attended = x.new_empty((len(x), self._heads.queries, self._heads.dim))
        plan = attends.plan(attended, kv, layout, self._counters)
        last = len(self._layers) - 1
        for index, layer in enumerate(self._layers):
            q = self._queries(layer, *self._normed(x, layer.input_norm), cos, sin, kv.layer(index), layout.slots)
            attends.attend(index, q, kv, layout, attended, plan)
            if index == last and wanted is not None:  # whose K and V are there needs no more
                x, attended = x.index_select(0, wanted), attended.index_select(0, wanted)
            layer.output.add_to(x, attended.flatten(1), plan.counters)
            layer.down.add_to(x, layer.gate_up.normed(*self._normed(x, layer.mlp_norm)), plan.counters)
        return x

    def _normed(self, x: torch.Tensor, norm: torch.Tensor) -> tuple[torch.Tensor, float | None]:
        """What RMSNorm makes of ``x``; or ``x``, and the eps that it is to be normed with, by whoever multiplies it.

        That takes a matrix that has the norm's weights in itself: see `folded`.
        """
        return (x, self._eps) if folds(x.dtype) else (rms_norm(x, norm, self._eps), None)

    def _queries(
        self,
        layer: TritonLayer,
        x: torch.Tensor,
        eps: float | None,
        cos: torch.Tensor,
        sin: torch.Tensor,
        pools: tuple[torch.Tensor, torch.Tensor],
        slots: torch.Tensor,
    ) -> torch.Tensor:
        """q [T, H, D], turned; k and v go to their slots. A norm of whole heads needs the whole product first."""
        heads, qkv = self._heads, layer.qkv
        if layer.norms is None and tile_for(qkv.weight, len(x)):
            return rotated_product(x, qkv.weight, qkv.bias, eps, heads, cos, sin, pools, slots)
        turn = partial(
            rotate, heads=heads, cos=cos, sin=sin, norms=layer.norms, eps=self._eps, pools=pools, slots=slots
        )
        if rows := unscaled(qkv.weight, x, eps):
            packed = F.linear(x, qkv.weight)
            turn(packed, unscaled=rows, bias=qkv.bias)
        else:
            packed = qkv.normed(x, eps)
            turn(packed)
        return packed[:, : heads.queries * heads.dim].view(len(x), heads.queries, heads.dim)


def folds(dtype: torch.dtype) -> bool:
    """Whether products may be made of rows before they are scaled: in float16 they might be too large."""
    return dtype is not torch.float16


def folded(matrix: torch.Tensor, norm: torch.Tensor) -> torch.Tensor:
    """``matrix`` [out, in] with the weights ``norm`` [in] of the RMSNorm before it, of which a factor is left."""
    return (matrix.float() * norm.float()).to(matrix.dtype)
