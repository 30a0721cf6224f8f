"""The shared memory of a multiprocessor: how much of it a program may take, and the first tile that makes do with it.

A kernel that needs more is compiled all the same, but cannot be loaded. By compute capability (CUDA programming guide,
"Technical specifications per compute capability"): 163 KiB at 8.0 (A100), 99 at 8.6, 8.9 and 12.0 (A10, L4, GeForce
RTX 30 to 50), 227 at 9.0 and 10.0 (H100, H200, B200). The tiles of the kernels were found on an H200.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from functools import cache
from typing import Any, TypeVar

import torch

from pellucid.errors import KernelError
from pellucid.triton_launch import INTERPRETED

Tile = TypeVar("Tile")


@cache
def shared_memory(device: torch.device) -> float:
    """Bytes that a program may take on ``device``. In Triton's interpreter there is no limit."""
    if INTERPRETED or device.type != "cuda":
        return math.inf
    properties: Any = torch.cuda.get_device_properties(device)  # has more than its type says
    return float(properties.shared_memory_per_block_optin)


def first_to_fit(tiles: Iterable[Tile], need: Callable[[Tile], int], limit: float, what: str, instead: str) -> Tile:
    """The first of ``tiles``, better ones first, that needs no more than ``limit`` bytes.

    Raises `KernelError` if all need more; ``what`` is what cannot be computed then, ``instead`` the option to choose.
    """
    least = math.inf
    for tile in tiles:
        if need(tile) <= limit:
            return tile
        least = min(least, need(tile))
    raise KernelError(
        f"{what} takes {least:,} bytes of a multiprocessor's shared memory, and on this device a program has "
        f"{limit:,.0f} at most: choose {instead}, or another dtype."
    )
