"""Which operations to run a model with."""

from __future__ import annotations

import torch

from pellucid.errors import ConfigError
from pellucid.native import native
from pellucid.ops.base import Ops
from pellucid.ops.compiled import CompiledOps
from pellucid.ops.plain import PlainOps
from pellucid.ops.prepacked import PrepackedOps

NAMES = ("auto", "compiled", "onednn", "torch", "triton")


def choose_ops(name: str, dtype: torch.dtype, device: torch.device) -> Ops:
    """The operations of this ``name``; ``auto`` takes the fastest that ``device`` can run, and says why.

    Raises `ConfigError` for an unknown name, and for operations that cannot be had here, with the reason.
    """
    if name not in NAMES:
        raise ConfigError(f"There are no kernels {name!r}; known: {', '.join(NAMES)}.")
    if name == "triton" or (name == "auto" and device.type == "cuda"):
        return _on_a_card(name, dtype, device)
    missing = native().missing(dtype, device)
    if name == "compiled" or (name == "auto" and not missing):
        if missing:
            raise ConfigError(f"The compiled kernels cannot be used: {missing}; choose kernels='auto'.")
        return CompiledOps(dtype, native().module, f"compiled kernels ({native().why})")
    because = f"; not the compiled kernels: {missing}" if missing and device.type == "cpu" else ""
    prepacks = dtype is torch.bfloat16 and device.type == "cpu" and PrepackedOps.available()
    if name == "onednn" and not prepacks:
        raise ConfigError("oneDNN has no kernels for bfloat16 here, or dtype is not bfloat16; choose kernels='auto'.")
    if name == "onednn" or (name == "auto" and prepacks):
        return PrepackedOps(dtype, f"torch, weights prepacked by oneDNN{because}")
    return PlainOps(dtype, f"torch{because}")


def _on_a_card(name: str, dtype: torch.dtype, device: torch.device) -> Ops:
    try:
        from pellucid.ops.triton import TritonOps  # here, because most machines have no triton
    except ImportError as error:
        missing: str | None = f"triton cannot be imported ({error})"
    else:
        missing = TritonOps.missing(device)
        if missing is None:
            return TritonOps(dtype, f"Triton kernels and cuBLAS on {TritonOps.card(device)}")
    if name == "triton":
        raise ConfigError(f"The Triton kernels cannot be used: {missing}; choose kernels='auto'.")
    return PlainOps(dtype, f"torch; not the Triton kernels: {missing}")
