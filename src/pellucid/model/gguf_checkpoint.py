"""A model in a GGUF file: llama.cpp's keys and tensor names turned into ours."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from pellucid.errors import ModelError
from pellucid.model import gguf_tokenizer, registry
from pellucid.model.config import Fields, ModelConfig
from pellucid.model.gguf import GGUFFile
from pellucid.model.rope import RopeScaling
from pellucid.model.tokenizer import Tokenizer
from pellucid.model.weights import Shape, Weights
from pellucid.ops import Quantised

_ROPE_DIVISORS = "rope_freqs.weight"
_WHOLE = {
    "token_embd.weight": "model.embed_tokens.weight",
    "output_norm.weight": "model.norm.weight",
    "output.weight": "lm_head.weight",
}
_OF_A_LAYER = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}


class GGUFCheckpoint:
    """The model, tokenizer and chat template of one .gguf file; ``name`` is what to call it."""

    def __init__(self, path: Path, name: str | None = None) -> None:
        self.name, self.source = name or path.stem, str(path)
        self._file = GGUFFile(path)
        self._architecture = registry.from_gguf(self._file.metadata.get("general.architecture"), self.source)
        self.config = _config(self._file, self._architecture)

    def tokenizer(self) -> Tokenizer | None:
        return gguf_tokenizer.from_metadata(self._file.metadata, self.source)

    def weights(self) -> Weights:
        return GGUFWeights(self._file, self.config if self._architecture.gguf_permuted else None)


class GGUFWeights:
    """The file's tensors under Hugging Face names; q and k rows put back in half-split order for ``permuted``."""

    def __init__(self, file: GGUFFile, permuted: ModelConfig | None) -> None:
        self.origin = str(file.path)
        self._file = file
        self._names = {_our_name(name): name for name in file.tensors if name != _ROPE_DIVISORS}
        self._heads = {"q_proj": permuted.num_heads, "k_proj": permuted.num_kv_heads} if permuted else {}
        self.shapes: Mapping[str, Shape] = {ours: file.tensors[theirs].shape for ours, theirs in self._names.items()}

    def copy_to(self, name: str, out: torch.Tensor) -> None:
        self._file.copy_to(self._names[name], out, self._order(name))

    def stored(self, name: str) -> Quantised | None:
        return self._file.stored(self._names[name], self._order(name))

    def _order(self, name: str) -> torch.Tensor | None:
        heads = self._heads.get(name.split(".")[-2])
        return None if heads is None else half_split_order(self.shapes[name][0], heads)


def half_split_order(rows: int, heads: int) -> torch.Tensor:
    """Which stored row belongs where: llama.cpp puts the pair (i, i + D/2) of a head side by side, as 2i and 2i + 1."""
    return torch.arange(rows).view(heads, -1, 2).transpose(1, 2).flatten()


def _our_name(name: str) -> str:
    if name in _WHOLE:
        return _WHOLE[name]
    found = re.fullmatch(r"blk\.(\d+)\.(\w+)\.(weight|bias)", name)
    if found and found[2] in _OF_A_LAYER:
        return f"model.layers.{found[1]}.{_OF_A_LAYER[found[2]]}.{found[3]}"
    return name


def _config(file: GGUFFile, architecture: registry.Architecture) -> ModelConfig:
    where, metadata = str(file.path), file.metadata
    fields = Fields(metadata, where, prefix=f"{architecture.gguf}.")
    _refuse_unsupported(fields, where)
    if "token_embd.weight" not in file.tensors:
        raise ModelError(f"{where}: the tensor 'token_embd.weight' is missing.")
    hidden, heads = fields.integer("embedding_length"), fields.integer("attention.head_count")
    head_dim = fields.integer("attention.key_length", hidden // max(heads, 1))
    if fields.integer("rope.dimension_count", head_dim) != head_dim:
        raise ModelError(f"{where}: rotary embedding over only a part of each head is not supported.")
    tokens = Fields(metadata, where, prefix="tokenizer.ggml.")
    ends = [tokens.optional_integer(f"{kind}_token_id") for kind in ("eos", "eot", "eom")]
    return ModelConfig(
        architecture=architecture.name,
        vocab_size=file.tensors["token_embd.weight"].shape[0],
        hidden_size=hidden,
        intermediate_size=fields.integer("feed_forward_length"),
        num_layers=fields.integer("block_count"),
        num_heads=heads,
        num_kv_heads=fields.integer("attention.head_count_kv", heads),
        head_dim=head_dim,
        max_position=fields.integer("context_length"),
        rope_theta=fields.number("rope.freq_base", 10000.0),
        rope_scaling=_rope_scaling(file, fields),
        rms_eps=fields.number("attention.layer_norm_rms_epsilon"),
        tie_embeddings="output.weight" not in file.tensors,
        qkv_bias=architecture.qkv_bias,
        qk_norm=architecture.qk_norm,
        bos_token_id=tokens.optional_integer("bos_token_id"),
        eos_token_ids=tuple(dict.fromkeys(end for end in ends if end is not None)),
    ).checked(where)


def _rope_scaling(file: GGUFFile, fields: Fields) -> RopeScaling | None:
    kind = fields.raw("rope.scaling.type", "none")
    if _ROPE_DIVISORS in file.tensors and kind == "none":
        divisors = torch.empty(file.tensors[_ROPE_DIVISORS].shape)
        file.copy_to(_ROPE_DIVISORS, divisors)
        return RopeScaling(kind="divisors", divisors=tuple(divisors.tolist()))
    if kind == "none":
        return None
    if kind == "linear":
        return RopeScaling(kind="linear", factor=fields.number("rope.scaling.factor"))
    raise ModelError(f"{file.path}: rope scaling {kind!r} is not supported; supported: none, linear, llama3's table.")


def _refuse_unsupported(fields: Fields, where: str) -> None:
    experts: Any = fields.raw("expert_count", 0)
    if experts:
        raise ModelError(f"{where}: a mixture of {experts} experts is not supported; only dense models are.")
    window = fields.integer("attention.sliding_window", 0)
    if 0 < window < fields.integer("context_length"):
        raise ModelError(f"{where}: a sliding window of {window} tokens is not supported.")
