"""Fresh memory with something bad in it, and guards around it: who forgets to write, or writes too far, is found."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

GUARD = 64
"""Numbers before and behind every tensor, all NaN."""


@contextmanager
def guarded_memory() -> Iterator[None]:
    """Inside, `torch.empty` and `torch.empty_like` give floating tensors that are NaN, in memory that goes on with NaN.

    Raises `AssertionError` at the end if a tensor was written to beyond its ends.
    """
    empty, empty_like = torch.empty, torch.empty_like
    given: list[tuple[torch.Tensor, int]] = []

    def guarded(*args: Any, **options: Any) -> torch.Tensor:
        like = empty(*args, **options)
        if not like.is_floating_point():
            return like
        whole = empty(like.numel() + 2 * GUARD, dtype=like.dtype).fill_(torch.nan)
        given.append((whole, like.numel()))
        return whole[GUARD : GUARD + like.numel()].view(like.shape)

    torch.empty = guarded
    torch.empty_like = lambda x, **options: guarded(x.shape, dtype=options.get("dtype", x.dtype))
    try:
        yield
    finally:
        torch.empty, torch.empty_like = empty, empty_like
    for whole, count in given:
        outside = torch.cat((whole[:GUARD], whole[GUARD + count :]))
        assert outside.isnan().all(), f"{int((~outside.isnan()).sum())} numbers beyond a tensor of {count} were written"
