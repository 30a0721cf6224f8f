"""Which architectures can be run, and how the members of the Llama family differ: one table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from pellucid.errors import ModelError


@dataclass(frozen=True, kw_only=True)
class Architecture:
    """One member of the Llama family.

    ``name`` is what config.json writes under ``architectures`` and ``gguf`` what a GGUF file
    writes as ``general.architecture`` (None: such models are published under another's name).
    ``window`` says when a ``sliding_window`` in config.json counts: never, always (and it is
    4,096 where not given), or only with ``use_sliding_window``.
    ``gguf_permuted``: llama.cpp stores the q and k rows of this architecture in its interleaved
    rotary order.
    """

    name: str
    gguf: str | None = None
    qkv_bias: bool = False
    qk_norm: bool = False
    window: Literal["never", "always", "opt-in"] = "never"
    gguf_permuted: bool = False


ARCHITECTURES = (
    Architecture(name="LlamaForCausalLM", gguf="llama", gguf_permuted=True),
    Architecture(name="MistralForCausalLM", window="always"),
    Architecture(name="Qwen2ForCausalLM", gguf="qwen2", qkv_bias=True, window="opt-in"),
    Architecture(name="Qwen3ForCausalLM", gguf="qwen3", qk_norm=True, window="opt-in"),
)


def from_config_json(names: Sequence[str], where: str) -> Architecture:
    """The first of ``names`` (config.json's list) that can be run; raises `ModelError` naming both sides."""
    for architecture in ARCHITECTURES:
        if architecture.name in names:
            return architecture
    asked = " or ".join(map(repr, names)) if names else "(none given)"
    supported = ", ".join(architecture.name for architecture in ARCHITECTURES)
    raise ModelError(f"{where}: the architecture {asked} is not supported; supported: {supported}.")


def from_gguf(name: object, where: str) -> Architecture:
    """The architecture of a GGUF file's ``general.architecture``; raises `ModelError` naming both sides."""
    for architecture in ARCHITECTURES:
        if name is not None and architecture.gguf == name:
            return architecture
    supported = ", ".join(architecture.gguf for architecture in ARCHITECTURES if architecture.gguf)
    raise ModelError(
        f"{where}: the GGUF architecture {name!r} is not supported; "
        f"supported: {supported} (Mistral files are published as llama)."
    )
