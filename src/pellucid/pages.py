"""Memory in large pages, where the operating system has them to give.

A processor keeps the places of a few thousand pages at hand. Weights and a KV pool in pages of 4 KiB are
hundreds of thousands, and on a virtual machine each one that is not at hand costs hundreds of nanoseconds:
reading scattered blocks took three times as long, and reading weights a quarter longer.
"""

from __future__ import annotations

import math
import mmap
from contextlib import suppress
from threading import Lock

import torch

PAGE = 2**21
CHUNK = 16 * PAGE
"""What an `Arena` asks for at a time, 32 MiB."""

LARGE = 2 * PAGE
"""From this size on a thing has pages of its own."""


def paged_bytes(nbytes: int, *, at_once: bool) -> torch.Tensor:
    """``nbytes`` zero bytes on the CPU, uint8, that are really had; from 2 MiB on they begin at a large page.

    ``at_once``: in large pages from the start. Making those costs seconds a GiB where memory is fragmented, so
    otherwise the system is left to gather them in time, if it does that.

    Raises `OSError` if there is not so much memory.
    """
    if not hasattr(mmap, "MADV_HUGEPAGE") or nbytes < PAGE:
        return torch.zeros(nbytes, dtype=torch.uint8)
    memory = mmap.mmap(-1, nbytes + PAGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    whole = torch.frombuffer(memory, dtype=torch.uint8)
    start = -whole.data_ptr() % PAGE
    ours = whole[start : start + nbytes]
    if at_once:
        _wish_for_large_pages(memory)
    ours[:: mmap.PAGESIZE] = 0  # memory is given when it is first written to
    _wish_for_large_pages(memory)
    return ours


def _wish_for_large_pages(memory: mmap.mmap) -> None:
    with suppress(OSError):  # a system built without them
        memory.madvise(mmap.MADV_HUGEPAGE)


class Arena:
    """Hands out memory for things that stay: many of them share a large page."""

    def __init__(self) -> None:
        self._chunk = torch.empty(0, dtype=torch.uint8)
        self._used = 0
        self._one_at_a_time = Lock()

    def take(self, nbytes: int) -> torch.Tensor:
        """``nbytes`` zero bytes, uint8, beginning at a multiple of 64."""
        if nbytes >= LARGE:
            return paged_bytes(nbytes, at_once=True)
        needed = math.ceil(nbytes / 64) * 64
        with self._one_at_a_time:
            if needed > len(self._chunk) - self._used:
                self._chunk, self._used = paged_bytes(CHUNK, at_once=True), 0
            start = self._used
            self._used += needed
            return self._chunk[start : start + nbytes]
