"""Rows of an embedding, gathered."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from pellucid.triton_bulk import roomy
from pellucid.triton_launch import announce, await_input, chained


@triton.jit
def rows_kernel(ids, matrix, out, K: tl.constexpr, WIDTH: tl.constexpr, PDL: tl.constexpr):
    announce(PDL)
    token = tl.program_id(0).to(tl.int64)
    k = tl.arange(0, WIDTH)
    await_input(PDL)
    id = tl.load(ids + token).to(tl.int64)
    tl.store(out + token * K + k, tl.load(matrix + id * K + k, mask=k < K), mask=k < K)


def rows(ids: torch.Tensor, matrix: torch.Tensor) -> torch.Tensor:
    """The rows ``ids`` [T] of ``matrix`` [tokens, hidden], both contiguous: [T, hidden]."""
    hidden = matrix.shape[1]
    out = roomy((len(ids), hidden), matrix)
    if len(ids):
        rows_kernel[(len(ids),)](ids, matrix, out, hidden, triton.next_power_of_2(hidden), **chained(out.device))
    return out
