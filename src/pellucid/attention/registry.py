"""Attention backends by name."""

from __future__ import annotations

import torch

from pellucid.attention.base import AttentionBackend
from pellucid.attention.reference import ReferenceAttention
from pellucid.errors import ConfigError

BACKENDS: dict[str, type[AttentionBackend]] = {ReferenceAttention.name: ReferenceAttention}
FASTEST = {"cpu": ReferenceAttention.name, "cuda": ReferenceAttention.name}


def attention_backend(name: str = "auto", device: torch.device | str = "cpu") -> AttentionBackend:
    """The backend of this name; ``auto`` takes the fastest that ``device`` has.

    Raises `ConfigError` for an unknown name.
    """
    if name == "auto":
        name = FASTEST.get(torch.device(device).type, ReferenceAttention.name)
    if name not in BACKENDS:
        raise ConfigError(f"There is no attention backend {name!r}; known: auto, {', '.join(sorted(BACKENDS))}.")
    return BACKENDS[name]()
