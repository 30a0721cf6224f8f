"""Attention backends by name."""

from __future__ import annotations

import torch

from pellucid.attention.base import AttentionBackend
from pellucid.attention.compiled import CompiledAttention
from pellucid.attention.reference import ReferenceAttention
from pellucid.errors import ConfigError

NAMES = ("auto", "compiled", "reference", "triton")


def attention_backend(
    name: str = "auto",
    device: torch.device | str = "cpu",
    dtype: torch.dtype = torch.float32,
    head_dim: int = 64,
) -> AttentionBackend:
    """The backend of this name; ``auto`` takes the fastest that ``device`` has for this type and size of heads.

    Raises `ConfigError` for an unknown name, and for a backend that cannot be had here.
    """
    if name not in NAMES:
        raise ConfigError(f"There is no attention backend {name!r}; known: {', '.join(NAMES)}.")
    device = torch.device(device)
    if name == "auto":
        fastest = "triton" if device.type == "cuda" else "compiled"
        name = "reference" if _missing(fastest, device, dtype, head_dim) else fastest
    missing = _missing(name, device, dtype, head_dim)
    if missing:
        raise ConfigError(f"{name.capitalize()} attention cannot be used: {missing}; choose attention_backend='auto'.")
    return _backend(name)()


def _missing(name: str, device: torch.device, dtype: torch.dtype, head_dim: int) -> str | None:
    """Why the backend ``name`` cannot be had here; None if it can."""
    if name == "compiled":
        return CompiledAttention.missing(dtype, device, head_dim)
    if name == "triton":
        try:
            from pellucid.attention.triton import TritonAttention
        except ImportError as error:
            return f"triton cannot be imported ({error})"
        return TritonAttention.missing(device, head_dim)
    return None


def _backend(name: str) -> type[AttentionBackend]:
    if name == "triton":
        from pellucid.attention.triton import TritonAttention  # here, because most machines have no triton

        return TritonAttention
    return CompiledAttention if name == "compiled" else ReferenceAttention
