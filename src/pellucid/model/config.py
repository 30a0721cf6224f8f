"""The shape of a model, whatever file it was read from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pellucid.errors import ModelError
from pellucid.model import registry
from pellucid.model.rope import RopeScaling

_SIZES = (
    *("vocab_size", "hidden_size", "intermediate_size", "max_position"),
    *("num_layers", "num_heads", "num_kv_heads", "head_dim"),
)


@dataclass(frozen=True, kw_only=True)
class ModelConfig:
    """A decoder of the Llama family: sizes, rotary embedding, and what sets its members apart.

    Head h reads KV head ``h // (num_heads // num_kv_heads)``. ``max_position`` is the longest
    context in tokens. ``eos_token_ids`` are all tokens that end a text, the chief one first.
    """

    architecture: str
    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    max_position: int
    rope_theta: float = 10000.0
    rope_scaling: RopeScaling | None = None
    rms_eps: float = 1e-6
    tie_embeddings: bool = False
    qkv_bias: bool = False
    qk_norm: bool = False
    bos_token_id: int | None = None
    eos_token_ids: tuple[int, ...] = ()

    def checked(self, where: str) -> ModelConfig:
        """Itself, if its numbers can be a model; else `ModelError`, beginning with ``where``, with the numbers."""
        for name in _SIZES:
            if getattr(self, name) < 1:
                raise ModelError(f"{where}: {name} must be at least 1, not {getattr(self, name)}.")
        if self.num_heads % self.num_kv_heads:
            raise ModelError(
                f"{where}: {self.num_heads} attention heads cannot be shared out among {self.num_kv_heads} KV heads."
            )
        if self.head_dim % 2:
            raise ModelError(f"{where}: head_dim must be even for rotary embedding, not {self.head_dim}.")
        if not (self.rope_theta > 0 and self.rms_eps > 0):
            raise ModelError(
                f"{where}: rope theta ({self.rope_theta}) and RMS epsilon ({self.rms_eps}) must be more than 0."
            )
        return self


class Fields:
    """Typed reading of a config file: a missing or mistyped key is a `ModelError` that names it."""

    def __init__(self, values: Mapping[str, Any], where: str, prefix: str = "") -> None:
        self._values, self._where, self._prefix = values, where, prefix

    def raw(self, key: str, default: Any = None) -> Any:
        value = self._values.get(self._prefix + key)
        return default if value is None else value

    def is_null(self, key: str) -> bool:
        """Whether the key is there and says null, which is not the same as not being there."""
        return self._prefix + key in self._values and self._values[self._prefix + key] is None

    def number(self, key: str, default: float | None = None) -> float:
        value = self.raw(key, default)
        if value is None:
            raise ModelError(f"{self._where} has no {self._prefix + key!r}, which this architecture needs.")
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise ModelError(f"{self._where}: {self._prefix + key!r} must be a number, not {value!r}.")
        return float(value)

    def integer(self, key: str, default: int | None = None) -> int:
        value = self.number(key, default)
        if not value.is_integer():
            raise ModelError(f"{self._where}: {self._prefix + key!r} must be a whole number, not {value}.")
        return int(value)

    def optional_integer(self, key: str) -> int | None:
        return None if self.raw(key) is None else self.integer(key)


def from_config_json(raw: Mapping[str, Any], generation: Mapping[str, Any], where: str) -> ModelConfig:
    """Read a Hugging Face config.json (``raw``) and generation_config.json (``generation``, may be empty).

    Raises `ModelError`, beginning with ``where``, for an unsupported architecture or feature,
    a missing key, or impossible numbers.
    """
    architecture = registry.from_config_json(raw.get("architectures") or [], where)
    fields = Fields(raw, where)
    rope = Fields(fields.raw("rope_parameters") or fields.raw("rope_scaling") or {}, f"{where} (rope parameters)")
    _refuse_unsupported(fields, rope, architecture, where)
    hidden, heads = fields.integer("hidden_size"), fields.integer("num_attention_heads")
    max_position = fields.integer("max_position_embeddings")
    eos = generation.get("eos_token_id")
    return ModelConfig(
        architecture=architecture.name,
        vocab_size=fields.integer("vocab_size"),
        hidden_size=hidden,
        intermediate_size=fields.integer("intermediate_size"),
        num_layers=fields.integer("num_hidden_layers"),
        num_heads=heads,
        num_kv_heads=fields.integer("num_key_value_heads", heads),
        head_dim=fields.integer("head_dim", hidden // max(heads, 1)),
        max_position=max_position,
        rope_theta=rope.number("rope_theta", fields.number("rope_theta", 10000.0)),
        rope_scaling=_rope_scaling(rope, max_position, where),
        rms_eps=fields.number("rms_norm_eps", 1e-6),
        tie_embeddings=bool(fields.raw("tie_word_embeddings", False)),
        qkv_bias=architecture.qkv_bias,
        qk_norm=architecture.qk_norm,
        bos_token_id=fields.optional_integer("bos_token_id"),
        eos_token_ids=_token_ids(fields.raw("eos_token_id") if eos is None else eos, where),
    ).checked(where)


def _token_ids(value: Any, where: str) -> tuple[int, ...]:
    ids = () if value is None else tuple(value) if isinstance(value, list) else (value,)
    if not all(isinstance(id, int) for id in ids):
        raise ModelError(f"{where}: 'eos_token_id' must be a token id or a list of them, not {value!r}.")
    return ids


def _rope_scaling(rope: Fields, max_position: int, where: str) -> RopeScaling | None:
    kind = rope.raw("rope_type") or rope.raw("type", "default")
    if kind == "default":
        return None
    if kind == "linear":
        return RopeScaling(kind="linear", factor=rope.number("factor"))
    if kind == "llama3":
        return RopeScaling(
            kind="llama3",
            factor=rope.number("factor"),
            low_freq_factor=rope.number("low_freq_factor"),
            high_freq_factor=rope.number("high_freq_factor"),
            original_max_position=rope.integer("original_max_position_embeddings", max_position),
        )
    raise ModelError(f"{where}: rope scaling {kind!r} is not supported; supported: default, linear, llama3.")


def _refuse_unsupported(fields: Fields, rope: Fields, architecture: registry.Architecture, where: str) -> None:
    activation = fields.raw("hidden_act", "silu")
    if activation != "silu":
        raise ModelError(f"{where}: the activation {activation!r} is not supported; supported: silu.")
    for flag in ("attention_bias", "mlp_bias"):
        if fields.raw(flag, False):
            raise ModelError(f"{where}: {flag}=true is not supported for {architecture.name}.")
    rotated = rope.number("partial_rotary_factor", fields.number("partial_rotary_factor", 1.0))
    if rotated != 1:
        raise ModelError(f"{where}: rotary embedding over only {rotated:.0%} of each head is not supported.")
    quantization = fields.raw("quantization_config")
    if quantization:
        method = quantization.get("quant_method", "unnamed")
        raise ModelError(
            f"{where}: weights quantised with {method!r} are not supported; "
            "use the original safetensors, or a GGUF file of the same model."
        )
    window = _active_window(fields, architecture)
    if window is not None:
        raise ModelError(
            f"{where}: a sliding window of {window} tokens is not supported; to attend to everything and keep within "
            f"{window} tokens, set sliding_window to null and max_position_embeddings to {window} in config.json."
        )


def _active_window(fields: Fields, architecture: registry.Architecture) -> int | None:
    """The sliding window that some layer would really apply within the model's own context, else None.

    The defaults are those of the published configuration classes: 4,096 tokens, from layer 28 on where it is opt-in.
    """
    always = architecture.window == "always"
    opted_in = architecture.window == "opt-in" and fields.raw("use_sliding_window", False)
    if not (always or opted_in) or fields.is_null("sliding_window"):
        return None
    layer_types = fields.raw("layer_types")
    if layer_types is not None and "sliding_attention" not in layer_types:
        return None
    by_depth = opted_in and layer_types is None
    if by_depth and fields.integer("max_window_layers", 28) >= fields.integer("num_hidden_layers"):
        return None
    window = fields.integer("sliding_window", 4096)
    return window if window < fields.integer("max_position_embeddings") else None
