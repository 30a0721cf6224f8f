"""The compiled kernels, where they are installed and this processor can run them."""

from __future__ import annotations

import importlib
import os
from functools import cache
from types import ModuleType
from typing import NamedTuple

import torch

SWITCH = "PELLUCID_KERNELS"
DTYPES = (torch.float32, torch.bfloat16)
INTERFACE = 1
"""The functions that we call, as the kernels number them."""


class Native(NamedTuple):
    """``kernels`` takes addresses (see kernels/src/module.cpp), or is None; ``why`` says what there is, or why not."""

    kernels: ModuleType | None
    why: str

    @property
    def module(self) -> ModuleType:
        """The kernels, for those who have asked `missing` before."""
        assert self.kernels is not None, self.why
        return self.kernels

    @property
    def multiplies_bfloat16(self) -> bool:
        """Whether the processor multiplies pairs of bfloat16 numbers."""
        return self.kernels is not None and "avx512_bf16" in self.kernels.features()

    def missing(self, dtype: torch.dtype, device: torch.device) -> str | None:
        """Why the kernels cannot compute in this type on this device; None if they can."""
        if device.type != "cpu":
            return f"there are kernels for a CPU, not for {device.type}"
        if self.kernels is None:
            return self.why
        if dtype not in DTYPES:
            return f"there are kernels for float32 and bfloat16, not for {str(dtype).removeprefix('torch.')}"
        if dtype is torch.bfloat16 and not self.multiplies_bfloat16:
            return "this processor does not multiply bfloat16 numbers (no AVX-512 BF16)"
        return None


@cache
def native() -> Native:
    """Look for the kernels, once. ``PELLUCID_KERNELS=off`` in the environment does without them."""
    if os.environ.get(SWITCH, "").lower() in ("off", "0", "no"):
        return Native(None, f"{SWITCH}={os.environ[SWITCH]}")
    try:
        _kernels = importlib.import_module("pellucid_kernels._kernels")
    except ModuleNotFoundError:
        return Native(None, "the package pellucid-kernels is not installed, or could not be compiled here")
    except ImportError as error:
        return Native(None, f"the package pellucid-kernels cannot be loaded ({error})")
    if (theirs := getattr(_kernels, "INTERFACE", 0)) != INTERFACE:
        return Native(None, f"pellucid-kernels has interface {theirs}, not {INTERFACE}: install it again from kernels/")
    features = _kernels.features()
    if not features:
        return Native(None, "this processor has no AVX-512, for which they are written")
    return Native(_kernels, features)
