"""How kernels follow each other on the card: each may start while the one before it still runs.

Programmatic dependent launch (CUDA programming guide, "Programmatic Dependent Launch and Synchronization"): a kernel
lets the next one start early, and waits itself before it reads what the one before it wrote. Weights, which no kernel
writes, are loaded ahead of that wait; so is what had been written before the one before it let this one start.
"""

from __future__ import annotations

from functools import cache

import torch
import triton
import triton.language as tl

INTERPRETED: bool = triton.knobs.runtime.interpret

LINE_BYTES = tl.constexpr(128)
"""Of a line of the cache, as `fetch` brings it."""


@cache
def chained(device: torch.device) -> dict[str, bool]:
    """Launch options of a kernel in the chain, on ``device``."""
    if INTERPRETED or torch.cuda.get_device_capability(device) < (9, 0):
        return {"PDL": False}
    return {"PDL": True, "launch_pdl": True}


@cache
def processors(device: torch.device) -> int:
    """Multiprocessors of the GPU; where there is none, few, since the interpreter runs one program after the other."""
    return torch.cuda.get_device_properties(device).multi_processor_count if device.type == "cuda" else 4


def upcast(dtype: torch.dtype) -> bool:
    """Whether operands must be widened before a product: the interpreter cannot multiply bfloat16 matrices."""
    return INTERPRETED and dtype is torch.bfloat16


@triton.jit
def announce(PDL: tl.constexpr):
    """Let the next kernel start: it waits for the end of this one before it reads what this one writes."""
    if PDL:
        tl.extra.cuda.gdc_launch_dependents()


@triton.jit
def await_input(PDL: tl.constexpr):
    """Wait for the end of the kernel before this one."""
    if PDL:
        tl.extra.cuda.gdc_wait()


@triton.jit
def fetch(pointers, PDL: tl.constexpr):
    """Have the lines of memory at ``pointers`` brought into the L2 cache while the kernel before this one ends."""
    if PDL:
        prefetch: tl.constexpr = "prefetch.global.L2 [$1]; mov.b32 $0, 0;"
        tl.inline_asm_elementwise(prefetch, "=r,l", [pointers.to(tl.int64)], dtype=tl.int32, is_pure=False, pack=1)
