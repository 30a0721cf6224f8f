"""The Llama family: one decoder for every architecture in the registry."""

from __future__ import annotations

import math
from collections.abc import Sequence
from copy import copy
from typing import TYPE_CHECKING

import torch

from pellucid.model import rope
from pellucid.model.config import ModelConfig
from pellucid.model.weights import Shape, Weights, check
from pellucid.ops import Heads, Layer, Matrix, Ops, Scores
from pellucid.ops.base import Decoder

if TYPE_CHECKING:
    from pellucid.attention import AttentionBackend, KVStorage, StepLayout


def tensor_shapes(config: ModelConfig) -> dict[str, Shape]:
    """Every tensor that a checkpoint of ``config`` holds, under Hugging Face names, with its shape [out, in]."""
    hidden, inner = config.hidden_size, config.intermediate_size
    queries, keys = config.num_heads * config.head_dim, config.num_kv_heads * config.head_dim
    layer: dict[str, Shape] = {
        "input_layernorm.weight": (hidden,),
        "self_attn.q_proj.weight": (queries, hidden),
        "self_attn.k_proj.weight": (keys, hidden),
        "self_attn.v_proj.weight": (keys, hidden),
        "self_attn.o_proj.weight": (hidden, queries),
        "post_attention_layernorm.weight": (hidden,),
        "mlp.gate_proj.weight": (inner, hidden),
        "mlp.up_proj.weight": (inner, hidden),
        "mlp.down_proj.weight": (hidden, inner),
    }
    if config.qkv_bias:
        layer |= {f"self_attn.{name}_proj.bias": (rows,) for name, rows in (("q", queries), ("k", keys), ("v", keys))}
    if config.qk_norm:
        layer |= {f"self_attn.{name}_norm.weight": (config.head_dim,) for name in "qk"}
    shapes: dict[str, Shape] = {"model.embed_tokens.weight": (config.vocab_size, hidden)}
    for index in range(config.num_layers):
        shapes |= {f"model.layers.{index}.{name}": shape for name, shape in layer.items()}
    shapes["model.norm.weight"] = (hidden,)
    if not config.tie_embeddings:
        shapes["lm_head.weight"] = (config.vocab_size, hidden)
    return shapes


def weight_bytes(config: ModelConfig, dtype: torch.dtype) -> int:
    """Bytes of all weights of ``config`` as ``dtype``; a tied output matrix is the embedding."""
    return sum(math.prod(shape) for shape in tensor_shapes(config).values()) * dtype.itemsize


class Model:
    """A decoder of the Llama family, its weights in memory of its own, its arithmetic that of ``ops``.

    ``quantised``: weights that the checkpoint has in 4 or 8 bits stay so.
    ``weight_bytes`` counts every weight once (a tied output matrix is the embedding).
    Raises `ModelError` before any weight is read if ``weights`` are not what ``config`` asks for.
    """

    def __init__(
        self, config: ModelConfig, weights: Weights, ops: Ops, device: torch.device, *, quantised: bool = False
    ) -> None:
        self._shapes = tensor_shapes(config)
        check(weights, self._shapes, ignored=frozenset({"lm_head.weight"}))
        self.config, self.ops, self.dtype, self.device = config, ops, ops.dtype, device
        self._weights, self.quantised = weights, quantised
        self._vocabulary = ops.vocabulary(self._matrix("model.embed_tokens.weight"))
        self._layers = [self._layer(f"model.layers.{index}.") for index in range(config.num_layers)]
        self._norm = self._tensor("model.norm.weight")
        self._head = self._vocabulary if config.tie_embeddings else ops.vocabulary(self._matrix("lm_head.weight"))
        self._decoder = self._all_of(self._layers)
        self._frequencies = rope.frequencies(config.head_dim, config.rope_theta, config.rope_scaling).to(device)
        del self._weights

    def shallow(self) -> Model:
        """This model with its first two layers alone, on the same tensors.

        All layers are shaped alike, and whichever is the last may have fewer tokens to do: so a step of it launches
        every kernel that a step of the whole does.
        """
        shallow = copy(self)
        shallow._layers = self._layers[:2]
        shallow._decoder = self._all_of(shallow._layers)
        return shallow

    @property
    def batch_invariant(self) -> bool:
        """Whether a token's numbers are the same to the last bit in any batch: unless matrices were left to torch."""
        return self.ops.batch_invariant and self._decoder is not None

    @property
    def weight_bytes(self) -> int:
        matrices = [m.nbytes for layer in self._layers for m in (layer.qkv, layer.output, layer.gate_up, layer.down)]
        norms = [
            norm.nbytes
            for layer in self._layers
            for norm in (layer.input_norm, layer.mlp_norm, layer.q_norm, layer.k_norm)
            if norm is not None
        ]
        ends = {id(end): end.nbytes for end in (self._vocabulary, self._head)}
        return sum(matrices) + sum(norms) + self._norm.nbytes + sum(ends.values())

    @torch.inference_mode()
    def forward(
        self,
        token_ids: torch.Tensor,
        positions: torch.Tensor,
        kv: KVStorage,
        layout: StepLayout,
        attention: AttentionBackend,
        wanted: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """Hidden states [T, hidden_size] as they leave the last layer, of T tokens packed request after request.

        ``wanted`` (int64 [R]): the tokens whose hidden states are asked for, [R, hidden_size], instead of all.
        ``token_ids`` and ``positions`` are int64 [T]; ``layout`` says which rows belong together and where
        their K and V go; ``attention`` writes and reads ``kv``.
        """
        cos, sin = self.ops.angles(positions, self._frequencies)
        norm, eps = self.ops.rms_norm, self.config.rms_eps
        x = self._vocabulary.rows(token_ids)
        if self._decoder is not None and attention.name == self._decoder.attention:
            return self._decoder(x, cos, sin, kv, layout, attention, wanted)
        for index, layer in enumerate(self._layers):
            q, k, v = self._qkv(layer, norm(x, layer.input_norm, eps), cos, sin)
            attended = attention.forward(index, q, k, v, kv, layout)
            if index == len(self._layers) - 1 and wanted is not None:  # whose K and V are there needs no more
                x, attended = x[wanted], attended[wanted]
            layer.output.add_to(x, attended.flatten(1))
            layer.down.add_to(x, layer.gate_up(norm(x, layer.mlp_norm, eps)))
        return x

    @torch.inference_mode()
    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        """The last norm of R hidden states [R, hidden_size], then scores of every token: float32 [R, vocab_size]."""
        return self.ops.scores(self._head, hidden, self._norm, self.config.rms_eps)

    @torch.inference_mode()
    def wanted_scores(self, hidden: torch.Tensor, wanted: torch.Tensor) -> Scores:
        """`logits` of the rows where ``wanted`` [R] int32 is not 0 and the best of all rows; or all logits."""
        return self.ops.wanted_scores(self._head, hidden, self._norm, self.config.rms_eps, wanted)

    def _qkv(
        self, layer: Layer, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Queries [T, H, D], keys and values [T, Hkv, D]; queries and keys are rotated to their positions."""
        config, rotate = self.config, self.ops.rotate
        heads = layer.qkv(x).unflatten(1, (-1, config.head_dim))
        q, k, v = heads.split((config.num_heads, config.num_kv_heads, config.num_kv_heads), dim=1)
        if layer.q_norm is None or layer.k_norm is None:
            rotate(heads[:, : config.num_heads + config.num_kv_heads], cos, sin)
        else:
            q = self.ops.rms_norm(q, layer.q_norm, config.rms_eps)
            k = self.ops.rms_norm(k, layer.k_norm, config.rms_eps)
            rotate(q, cos, sin)
            rotate(k, cos, sin)
        return q, k, v

    def _all_of(self, layers: list[Layer]) -> Decoder | None:
        config = self.config
        return self.ops.decoder(layers, Heads(config.num_heads, config.num_kv_heads, config.head_dim), config.rms_eps)

    # -- loading -----------------------------------------------------------------------------------

    def _layer(self, at: str) -> Layer:
        config, attn, mlp = self.config, at + "self_attn.", at + "mlp."
        bias = torch.cat([self._tensor(f"{attn}{name}_proj.bias") for name in "qkv"]) if config.qkv_bias else None
        input_norm, qkv = self._folded(at + "input_layernorm", [f"{attn}{name}_proj" for name in "qkv"])
        mlp_norm, (gate, up) = self._folded(at + "post_attention_layernorm", [mlp + "gate_proj", mlp + "up_proj"])
        return Layer(
            input_norm=input_norm,
            qkv=self.ops.linear(qkv, bias),
            q_norm=self._tensor(attn + "q_norm.weight") if config.qk_norm else None,
            k_norm=self._tensor(attn + "k_norm.weight") if config.qk_norm else None,
            output=self.ops.linear([self._matrix(attn + "o_proj.weight")]),
            mlp_norm=mlp_norm,
            gate_up=self.ops.gated(gate, up),
            down=self.ops.linear([self._matrix(mlp + "down_proj.weight")]),
        )

    def _folded(self, norm: str, names: list[str]) -> tuple[torch.Tensor, Sequence[Matrix]]:
        return self.ops.folded(self._tensor(norm + ".weight"), [self._matrix(name + ".weight") for name in names])

    def _matrix(self, name: str) -> Matrix:
        stored = self._weights.stored(name) if self.quantised else None
        return self._tensor(name) if stored is None else stored

    def _tensor(self, name: str) -> torch.Tensor:
        out = torch.empty(self._shapes[name], dtype=self.dtype, device=self.device)
        self._weights.copy_to(name, out)
        return out
