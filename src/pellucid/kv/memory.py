"""Where a pool's bytes are: all that the accounting ever knows of memory."""

from __future__ import annotations

from typing import NamedTuple


class PoolMemory(NamedTuple):
    """Address and size in bytes of a pool, as its owner says now."""

    address: int
    nbytes: int
