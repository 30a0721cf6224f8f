"""Attention backends by name."""

from __future__ import annotations

import torch

from pellucid.attention.base import AttentionBackend
from pellucid.attention.compiled import CompiledAttention
from pellucid.attention.reference import ReferenceAttention
from pellucid.errors import ConfigError

BACKENDS: dict[str, type[AttentionBackend]] = {
    backend.name: backend for backend in (ReferenceAttention, CompiledAttention)
}


def attention_backend(
    name: str = "auto",
    device: torch.device | str = "cpu",
    dtype: torch.dtype = torch.float32,
    head_dim: int = 64,
) -> AttentionBackend:
    """The backend of this name; ``auto`` takes the fastest that ``device`` has for this type and size of heads.

    Raises `ConfigError` for an unknown name, and for a backend that cannot be had here.
    """
    missing = CompiledAttention.missing(dtype, torch.device(device), head_dim)
    if name == "auto":
        name = ReferenceAttention.name if missing else CompiledAttention.name
    if name not in BACKENDS:
        raise ConfigError(f"There is no attention backend {name!r}; known: auto, {', '.join(sorted(BACKENDS))}.")
    if name == CompiledAttention.name and missing:
        raise ConfigError(f"Compiled attention cannot be used: {missing}; choose attention_backend='auto'.")
    return BACKENDS[name]()
