"""The Llama family in plain torch: one decoder for every architecture in the registry."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F

from pellucid.model import rope
from pellucid.model.config import ModelConfig
from pellucid.model.weights import Shape, Weights, check

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


@dataclass(frozen=True)
class Layer:
    """The weights of one decoder layer: q, k and v are one matrix, and so are gate and up."""

    input_norm: torch.Tensor
    qkv: torch.Tensor
    qkv_bias: torch.Tensor | None
    q_norm: torch.Tensor | None
    k_norm: torch.Tensor | None
    output: torch.Tensor
    mlp_norm: torch.Tensor
    gate_up: torch.Tensor
    down: torch.Tensor


class Model:
    """A decoder of the Llama family, its weights in memory of its own.

    ``weight_bytes`` counts every weight once (a tied output matrix is the embedding).
    Raises `ModelError` before any weight is read if ``weights`` are not what ``config`` asks for.
    """

    def __init__(self, config: ModelConfig, weights: Weights, dtype: torch.dtype, device: torch.device) -> None:
        shapes = tensor_shapes(config)
        check(weights, shapes, ignored=frozenset({"lm_head.weight"}))
        self.config, self.dtype, self.device = config, dtype, device
        self.weight_bytes = 0

        def stacked(*names: str) -> torch.Tensor:
            rows = sum(shapes[name][0] for name in names)
            whole = torch.empty((rows, *shapes[names[0]][1:]), dtype=dtype, device=device)
            for part, name in zip(whole.split([shapes[name][0] for name in names]), names, strict=True):
                weights.copy_to(name, part)
            self.weight_bytes += whole.nbytes
            return whole

        def layer(index: int) -> Layer:
            at = f"model.layers.{index}."
            attn, mlp = at + "self_attn.", at + "mlp."
            return Layer(
                input_norm=stacked(at + "input_layernorm.weight"),
                qkv=stacked(*(f"{attn}{name}_proj.weight" for name in "qkv")),
                qkv_bias=stacked(*(f"{attn}{name}_proj.bias" for name in "qkv")) if config.qkv_bias else None,
                q_norm=stacked(attn + "q_norm.weight") if config.qk_norm else None,
                k_norm=stacked(attn + "k_norm.weight") if config.qk_norm else None,
                output=stacked(attn + "o_proj.weight"),
                mlp_norm=stacked(at + "post_attention_layernorm.weight"),
                gate_up=stacked(mlp + "gate_proj.weight", mlp + "up_proj.weight"),
                down=stacked(mlp + "down_proj.weight"),
            )

        self._embedding = stacked("model.embed_tokens.weight")
        self._layers = [layer(index) for index in range(config.num_layers)]
        self._norm = stacked("model.norm.weight")
        self._head = self._embedding if config.tie_embeddings else stacked("lm_head.weight")
        self._frequencies = rope.frequencies(config.head_dim, config.rope_theta, config.rope_scaling).to(device)

    @torch.inference_mode()
    def forward(
        self,
        token_ids: torch.Tensor,
        positions: torch.Tensor,
        kv: KVStorage,
        layout: StepLayout,
        attention: AttentionBackend,
    ) -> torch.Tensor:
        """Hidden states [T, hidden_size], after the last norm, of T tokens packed request after request.

        ``token_ids`` and ``positions`` are int64 [T]; ``layout`` says which rows belong together and where
        their K and V go; ``attention`` writes and reads ``kv``.
        """
        angles = positions[:, None, None].float() * self._frequencies
        cos, sin = angles.cos().to(self.dtype), angles.sin().to(self.dtype)
        x = F.embedding(token_ids, self._embedding)
        for index, layer in enumerate(self._layers):
            q, k, v = self._qkv(layer, x, cos, sin)
            attended = attention.forward(index, q, k, v, kv, layout)
            x = x + F.linear(attended.flatten(1), layer.output)
            x = x + self._mlp(layer, x)
        return self._rms_norm(x, self._norm)

    @torch.inference_mode()
    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        """Scores of every token for R hidden states [R, hidden_size]: float32 [R, vocab_size]."""
        return F.linear(hidden, self._head).float()

    def _qkv(
        self, layer: Layer, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Queries [T, H, D], keys and values [T, Hkv, D]; queries and keys are rotated to their positions."""
        config = self.config
        heads = F.linear(self._rms_norm(x, layer.input_norm), layer.qkv, layer.qkv_bias).unflatten(
            1, (-1, config.head_dim)
        )
        q, k, v = heads.split((config.num_heads, config.num_kv_heads, config.num_kv_heads), dim=1)
        if layer.q_norm is not None and layer.k_norm is not None:
            q, k = self._rms_norm(q, layer.q_norm), self._rms_norm(k, layer.k_norm)
        return rope.rotate(q, cos, sin), rope.rotate(k, cos, sin), v

    def _mlp(self, layer: Layer, x: torch.Tensor) -> torch.Tensor:
        gate, up = F.linear(self._rms_norm(x, layer.mlp_norm), layer.gate_up).chunk(2, dim=-1)
        return F.linear(F.silu(gate) * up, layer.down)

    def _rms_norm(self, x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        """Root-mean-square norm over the last axis, computed in float32 and cast back before the weight is applied."""
        wide = x.float()
        wide = wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + self.config.rms_eps)
        return weight * wide.to(x.dtype)
