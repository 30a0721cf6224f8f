"""Rotary position embedding (Su et al. 2021, arXiv:2104.09864), half-split as Hugging Face stores it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import torch


@dataclass(frozen=True, kw_only=True)
class RopeScaling:
    """How frequencies are stretched to reach positions beyond those of the first training.

    ``linear`` divides all of them by ``factor``. ``llama3`` (Llama 3.1) divides the low ones, leaves
    the high ones and blends between, by wavelength in units of ``original_max_position``.
    ``divisors`` divides frequency i by ``divisors[i]``, which is how GGUF files state ``llama3``.
    """

    kind: Literal["linear", "llama3", "divisors"]
    factor: float = 1.0
    low_freq_factor: float = 1.0
    high_freq_factor: float = 4.0
    original_max_position: int = 8192
    divisors: tuple[float, ...] = ()


def frequencies(head_dim: int, theta: float, scaling: RopeScaling | None) -> torch.Tensor:
    """Angle per position of each of the head_dim / 2 rotated pairs: float32 [head_dim / 2]."""
    base = 1.0 / theta ** (torch.arange(0, head_dim, 2, dtype=torch.float32) / head_dim)
    if scaling is None:
        return base
    if scaling.kind == "linear":
        return base / scaling.factor
    if scaling.kind == "divisors":
        return base / torch.tensor(scaling.divisors, dtype=torch.float32)
    return _llama3(base, scaling)


def _llama3(base: torch.Tensor, scaling: RopeScaling) -> torch.Tensor:
    turns = scaling.original_max_position * base / (2 * math.pi)  # full turns within the original context
    low, high = scaling.low_freq_factor, scaling.high_freq_factor
    kept = ((turns - low) / (high - low)).clamp(0, 1)
    return base * (kept + (1 - kept) / scaling.factor)
