"""All layers of a decoder, five kernels each for few rows: nothing goes to memory that the next product could take."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol, cast

import torch
import torch.nn.functional as F

from pellucid.ops.base import Heads
from pellucid.ops.triton_matrix import TritonGated, TritonLinear, most_counters, unscaled
from pellucid.ops.triton_norm import rms_norm
from pellucid.ops.triton_rope import rotate, rotated_product
from pellucid.ops.triton_tiles import tile_for
from pellucid.triton_bulk import roomy
from pellucid.triton_heads import Unturned

if TYPE_CHECKING:
    from pellucid.attention import AttentionBackend, KVStorage, StepLayout


FEW = 16
"""Tokens: so few turn in the product sooner than in attention (SmolLM2, one request: 0.322 instead of 0.334 ms)."""


class Planned(Protocol):
    """What attention makes once a step. ``counters``, as many as asked for, int32, are 0, for others that need some."""

    @property
    def counters(self) -> torch.Tensor: ...


class Attends(Protocol):
    """The half of attention that comes after K and V have been written, or after their product."""

    def plan(
        self, q: torch.Tensor, kv: KVStorage, layout: StepLayout, counters: int, *, turns: bool = False
    ) -> Planned:
        """What `attend` needs to know in every layer of a step; ``q`` is only asked for its sizes and type.

        ``turns``: it will be given heads unturned.
        """

    def attend(
        self,
        layer: int,
        q: torch.Tensor,
        kv: KVStorage,
        layout: StepLayout,
        out: torch.Tensor,
        plan: Planned,
        unturned: Unturned | None = None,
    ) -> None:
        """Write the attention of ``q`` [T, H, D], its heads side by side, to ``out`` [T, H, D]; padding to zeros.

        If ``q`` are the queries of heads ``unturned``, these are turned on the way, and their K and V put in their
        slots. ``plan``, slots and angles may be read before the kernel before this one has ended, so one must lie
        between that awaits what made them before it lets the next start: those that turn queries and keys do, and
        cuBLAS's, and products that are ``late``.
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
        attended = roomy((len(x), self._heads.queries, self._heads.dim), x)
        turns = self._attention_turns(len(x), layout)
        plan = attends.plan(attended, kv, layout, self._counters, turns=turns)
        last = len(self._layers) - 1
        for index, layer in enumerate(self._layers):
            normed = self._normed(x, layer.input_norm)
            if turns:
                unturned = self._product(layer, *normed, cos, sin, late=True)
                attends.attend(index, self._queries(unturned), kv, layout, attended, plan, unturned)
            else:
                q = self._turned(layer, *normed, cos, sin, kv.layer(index), layout.slots)
                attends.attend(index, q, kv, layout, attended, plan)
            if index == last and wanted is not None:  # whose K and V are there needs no more
                x, attended = selected(x, wanted), selected(attended, wanted)
            layer.output.add_to(x, attended.flatten(1), plan.counters)
            layer.down.add_to(x, layer.gate_up.normed(*self._normed(x, layer.mlp_norm)), plan.counters)
        return x

    def _attention_turns(self, tokens: int, layout: StepLayout) -> bool:
        """Whether attention is given heads unturned: not if others read K and V in this step, and not if so few turn on
        their way out of the product."""
        few = tokens <= FEW and self._turn_in_product(self._layers[0], tokens)
        return layout.apart and not few

    def _turn_in_product(self, layer: TritonLayer, tokens: int) -> bool:
        """Whether q, k and v turn on their way out of the product. A norm of whole heads needs all of it first."""
        return layer.norms is None and tile_for(layer.qkv.weight, tokens) is not None

    def _normed(self, x: torch.Tensor, norm: torch.Tensor) -> tuple[torch.Tensor, float | None]:
        """What RMSNorm makes of ``x``; or ``x``, and the eps that it is to be normed with, by whoever multiplies it.

        That takes a matrix that has the norm's weights in itself: see `folded`.
        """
        return (x, self._eps) if folds(x.dtype) else (rms_norm(x, norm, self._eps), None)

    def _turned(
        self,
        layer: TritonLayer,
        x: torch.Tensor,
        eps: float | None,
        cos: torch.Tensor,
        sin: torch.Tensor,
        pools: tuple[torch.Tensor, torch.Tensor],
        slots: torch.Tensor,
    ) -> torch.Tensor:
        """q [T, H, D], turned; k and v go to their slots."""
        if self._turn_in_product(layer, len(x)):
            return rotated_product(x, layer.qkv.weight, layer.qkv.bias, eps, self._heads, cos, sin, pools, slots)
        unturned = self._product(layer, x, eps, cos, sin)
        rotate(unturned, self._heads, pools, slots)
        return self._queries(unturned)

    def _product(
        self, layer: TritonLayer, x: torch.Tensor, eps: float | None, cos: torch.Tensor, sin: torch.Tensor, *,
        late: bool = False,
    ) -> Unturned:  # fmt: skip
        """q, k and v; ``late`` as that of `TritonLinear.normed`."""
        qkv = layer.qkv
        if rows := unscaled(qkv.weight, x, eps):
            return Unturned(F.linear(x, qkv.weight), cos, sin, layer.norms, self._eps, rows, qkv.bias)
        return Unturned(qkv.normed(x, eps, late=late), cos, sin, layer.norms, self._eps)

    def _queries(self, unturned: Unturned) -> torch.Tensor:
        queries, _, dim = self._heads
        return unturned.packed[:, : queries * dim].view(-1, queries, dim)


def selected(x: torch.Tensor, wanted: torch.Tensor) -> torch.Tensor:
    """The rows ``wanted`` of ``x``."""
    return torch.index_select(x, 0, wanted, out=roomy((len(wanted), *x.shape[1:]), x))


def folds(dtype: torch.dtype) -> bool:
    """Whether products may be made of rows before they are scaled: in float16 they might be too large."""
    return dtype is not torch.float16


def folded(matrix: torch.Tensor, norm: torch.Tensor) -> torch.Tensor:
    """``matrix`` [out, in] with the weights ``norm`` [in] of the RMSNorm before it, of which a factor is left."""
    return (matrix.float() * norm.float()).to(matrix.dtype)
