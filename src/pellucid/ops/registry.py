"""Which operations to run a model with."""

from __future__ import annotations

from types import ModuleType

import torch

from pellucid.errors import ConfigError
from pellucid.native import native
from pellucid.ops.base import Ops
from pellucid.ops.compiled import DENSE, CompiledOps
from pellucid.ops.plain import PlainOps
from pellucid.ops.prepacked import PrepackedOps

NAMES = ("auto", "compiled", "onednn", "torch")


def choose_ops(name: str, dtype: torch.dtype, device: torch.device) -> Ops:
    """The operations of this ``name``; ``auto`` takes the fastest that this processor can run, and says why.

    Raises `ConfigError` for an unknown name, and for operations that
    cannot be had here, with the reason.
    """
    if name not in NAMES:
        raise ConfigError(f"There are no kernels {name!r}; known: {', '.join(NAMES)}.")
    missing = _not_compiled(dtype, device)
    if name == "compiled" or (name == "auto" and not missing):
        if missing:
            raise ConfigError(f"The compiled kernels cannot be used: {missing}; choose kernels='auto'.")
        return CompiledOps(dtype, _kernels(), f"compiled kernels ({native().why})")
    because = f"; not the compiled kernels: {missing}" if missing and device.type == "cpu" else ""
    prepacks = dtype is torch.bfloat16 and device.type == "cpu" and PrepackedOps.available()
    if name == "onednn" and not prepacks:
        raise ConfigError("oneDNN has no kernels for bfloat16 here, or dtype is not bfloat16; choose kernels='auto'.")
    if name == "onednn" or (name == "auto" and prepacks):
        return PrepackedOps(dtype, f"torch, weights prepacked by oneDNN{because}")
    return PlainOps(dtype, f"torch{because}")


def _not_compiled(dtype: torch.dtype, device: torch.device) -> str | None:
    """Why the compiled kernels cannot be used; None if they can."""
    found = native()
    if device.type != "cpu":
        return f"they are for a CPU, not for {device.type}"
    if found.kernels is None:
        return found.why
    if dtype not in DENSE:
        return f"they compute in float32 and bfloat16, not in {str(dtype).removeprefix('torch.')}"
    if dtype is torch.bfloat16 and not found.multiplies_bfloat16:
        return "this processor does not multiply bfloat16 numbers (no AVX-512 BF16)"
    return None


def _kernels() -> ModuleType:
    kernels = native().kernels
    assert kernels is not None
    return kernels
