"""All layers of a decoder, five kernels each for few rows: nothing goes to memory that the next product could take."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol, cast

import torch
import torch.nn.functional as F

from pellucid.ops.base import Heads
from pellucid.ops.triton_matrix import TritonGated, TritonLinear
from pellucid.ops.triton_norm import NormedRows
from pellucid.ops.triton_rope import rotate, rotated_product
from pellucid.ops.triton_tiles import tile_for
from pellucid.triton_launch import chained

if TYPE_CHECKING:
    from pellucid.attention import AttentionBackend, KVStorage, StepLayout


class Attends(Protocol):
    """The half of attention that comes after K and V have been written."""

    def plan(self, q: torch.Tensor, kv: KVStorage, layout: StepLayout) -> object:
        """What `attend` needs to know in every layer of a step; ``q`` is only asked for its sizes and type."""

    def attend(
        self,
        layer: int,
        q: torch.Tensor,
        kv: KVStorage,
        layout: StepLayout,
        out: torch.Tensor,
        plan: object,
        *,
        pdl: bool = False,
    ) -> None:
        """Write the attention of ``q`` [T, H, D], its heads side by side, to ``out`` [T, H, D]; padding to zeros.

        ``pdl``: as the kernels here, it may start before the one before it has ended.
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

    def __call__(
        self,
        x: torch.Tensor,
        cos: torch.Tensor,
        sin: torch.Tensor,
        kv: KVStorage,
        layout: StepLayout,
        attention: AttentionBackend,
    ) -> None:
        attends = cast("Attends", attention)  # as its name says
        pdl = chained(x.device)["PDL"]
        attended = x.new_empty((len(x), self._heads.queries, self._heads.dim))
        plan = attends.plan(attended, kv, layout)
        rows = NormedRows(x, self._layers[0].input_norm, self._eps)
        for index, (layer, following) in enumerate(zip(self._layers, [*self._layers[1:], None], strict=True)):
            q = self._queries(layer, rows, cos, sin, kv.layer(index), layout.slots)
            attends.attend(index, q, kv, layout, attended, plan, pdl=pdl)
            rows = self._add(layer.output, attended.flatten(1), x, layer.mlp_norm, layer.gate_up)
            inner = layer.gate_up.of(rows)
            if following is None:
                layer.down.add_to(x, inner)
            else:
                rows = self._add(layer.down, inner, x, following.input_norm, following.qkv)

    def _add(
        self,
        linear: TritonLinear,
        made: torch.Tensor,
        x: torch.Tensor,
        norm: torch.Tensor,
        following: TritonLinear | TritonGated,
    ) -> NormedRows:
        """Add the product of ``made`` to ``x``, which is what ``following`` takes then, through RMSNorm.

        It is weighted on the way where cuBLAS is to take it, which would have to wait for a kernel that norms alone. In
        float16 it has to: rows that are not scaled might be too large.
        """
        early = tile_for(following.weight, len(x)) is None and x.dtype is not torch.float16
        return NormedRows(x, norm, self._eps, linear.add_before(x, made, norm if early else None))

    def _queries(
        self,
        layer: TritonLayer,
        rows: NormedRows,
        cos: torch.Tensor,
        sin: torch.Tensor,
        pools: tuple[torch.Tensor, torch.Tensor],
        slots: torch.Tensor,
    ) -> torch.Tensor:
        """q [T, H, D], turned; k and v go to their slots. A norm of whole heads needs the whole product first."""
        heads, qkv, x = self._heads, layer.qkv, rows.x
        if layer.norms is None and tile_for(qkv.weight, len(x)):
            weights = (qkv.weight, qkv.bias, rows.norm, rows.eps)
            return rotated_product(x, *weights, heads, cos, sin, pools, slots)
        if rows.weighted is None:
            packed = qkv.normed(x, rows.norm, rows.eps)
            rotate(packed, heads, cos, sin, layer.norms, self._eps, pools, slots)
        else:
            packed = F.linear(rows.weighted, qkv.weight)
            rotate(packed, heads, cos, sin, layer.norms, self._eps, pools, slots, unscaled=rows, bias=qkv.bias)
        return packed[:, : heads.queries * heads.dim].view(len(x), heads.queries, heads.dim)
