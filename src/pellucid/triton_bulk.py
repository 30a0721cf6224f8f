"""Tiles copied in bulk, by one instruction of one thread each: whether, of what, and out of what memory.

(CUDA programming guide, "Tensor Memory Access".) Where rows of a tile lie behind the last of the matrix, an H200 takes
up to two thirds longer, though they are zeros that nobody looks at: 12.4 instead of 7.3 µs for 200 rows in tiles of 64,
114 instead of 92 for 72 rows in one of 128. So a matrix of few rows is made with room for whole tiles behind it
(`roomy`), and a tile may reach into that (`tiles_of`); what is read there may be anything.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from triton.tools.tensor_descriptor import TensorDescriptor

from pellucid.triton_launch import INTERPRETED

ROOM = 64
"""Rows: there is memory for a multiple. No tile has more, but for those of 128 rows, which are for 65 or more."""


def copies_in_bulk(device: torch.device) -> bool:
    """Whether ``device`` has tensor memory access: from compute capability 9.0 on. (Triton does without, elsewhere.)"""
    return INTERPRETED or torch.cuda.get_device_capability(device) >= (9, 0)


def copyable(matrix: torch.Tensor) -> bool:
    """Whether tiles of ``matrix`` can be copied in bulk, where its device can: rows begin at multiples of 16 bytes."""
    return matrix.data_ptr() % 16 == 0 and matrix.stride(0) * matrix.itemsize % 16 == 0 and matrix.stride(1) == 1


def roomy(shape: Sequence[int], like: torch.Tensor) -> torch.Tensor:
    """A new tensor of ``shape``, of the type and on the device of ``like``: its memory goes on up to whole tiles."""
    whole = (multiple(shape[0], ROOM), *shape[1:])
    return torch.empty(whole, dtype=like.dtype, device=like.device)[: shape[0]]


def tiles_of(matrix: torch.Tensor, rows: int, columns: int) -> TensorDescriptor:
    """What a kernel copies tiles of [``rows``, ``columns``] by. Those behind the last row of ``matrix`` [n, m] are what
    lies in its memory there; if that ends before a tile does, zeros."""
    whole, stride = multiple(len(matrix), rows), matrix.stride(0)
    end = matrix.storage_offset() + (whole - 1) * stride + matrix.shape[1]
    there = whole if end * matrix.itemsize <= matrix.untyped_storage().nbytes() else len(matrix)
    return TensorDescriptor(matrix, [there, matrix.shape[1]], [stride, 1], [rows, columns])


def multiple(number: int, of: int) -> int:
    """The least multiple of ``of`` that is no less than ``number``."""
    return -(-number // of) * of
