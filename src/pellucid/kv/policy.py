"""Re-use policies: which ownerless block is given out next.

All three hand out never-used blocks in ascending order; they differ in where a returned block
goes. Nothing may be proved about an order: proofs speak of sets, and this file is why.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence

from pellucid.errors import ConfigError
from pellucid.kv.block import Block
from pellucid.kv.freelist import FreeList


class ReusePolicy(ABC):
    """Keeps every reclaimable block (cached or free) in the order it will be given out."""

    name: str

    @abstractmethod
    def __len__(self) -> int:
        """How many blocks are reclaimable."""

    @abstractmethod
    def __iter__(self) -> Iterator[Block]:
        """The reclaimable blocks, the next one to be given out first."""

    @abstractmethod
    def put(self, blocks: Sequence[Block]) -> None:
        """Accept returned ``blocks``, last block of their table first."""

    @abstractmethod
    def take(self, count: int) -> list[Block]:
        """Give out ``count`` blocks, at most ``len(self)``."""

    @abstractmethod
    def remove(self, block: Block) -> None:
        """Pull ``block`` out of the middle: it was found by a prefix lookup."""


class FreeFirst(ReusePolicy):
    """Free blocks before cached ones, in each group the longest returned first."""

    name = "free-first"

    def __init__(self) -> None:
        self._free = FreeList()
        self._cached = FreeList()

    def __len__(self) -> int:
        return len(self._free) + len(self._cached)

    def __iter__(self) -> Iterator[Block]:
        yield from self._free
        yield from self._cached

    def put(self, blocks: Sequence[Block]) -> None:
        free, cached = split(blocks)
        self._free.append(free)
        self._cached.append(cached)

    def take(self, count: int) -> list[Block]:
        free = len(self._free)
        if count <= free:
            return self._free.take(count)
        return self._free.take(free) + self._cached.take(count - free)

    def remove(self, block: Block) -> None:
        (self._free if block.content is None else self._cached).remove(block)


class OneQueue(ReusePolicy):
    """vLLM up to 0.23.0: one queue, everything returned goes to its back."""

    name = "vllm-0.23"

    def __init__(self) -> None:
        self._queue = FreeList()

    def __len__(self) -> int:
        return len(self._queue)

    def __iter__(self) -> Iterator[Block]:
        return iter(self._queue)

    def put(self, blocks: Sequence[Block]) -> None:
        self._queue.append(blocks)

    def take(self, count: int) -> list[Block]:
        return self._queue.take(count)

    def remove(self, block: Block) -> None:
        self._queue.remove(block)


class SplitQueue(OneQueue):
    """vLLM 0.24.0 and later: one queue, free blocks return to its front, cached ones to its back."""

    name = "vllm-0.24"

    def put(self, blocks: Sequence[Block]) -> None:
        free, cached = split(blocks)
        self._queue.prepend(free)
        self._queue.append(cached)


def split(blocks: Sequence[Block]) -> tuple[Sequence[Block], Sequence[Block]]:
    """``blocks`` without and with content, each in the given order."""
    for block in blocks:
        if block.content is not None:
            break
    else:  # the common case (caching off, short tails) makes no new lists
        return blocks, ()
    free = [block for block in blocks if block.content is None]
    cached = [block for block in blocks if block.content is not None]
    return free, cached


REUSE_POLICIES: dict[str, type[ReusePolicy]] = {policy.name: policy for policy in (FreeFirst, OneQueue, SplitQueue)}


def reuse_policy(name: str) -> ReusePolicy:
    """A fresh policy by name. Raises `ConfigError` for a name not in ``REUSE_POLICIES``."""
    if name not in REUSE_POLICIES:
        raise ConfigError(f"reuse_policy {name!r} is not known; choose one of {', '.join(REUSE_POLICIES)}.")
    return REUSE_POLICIES[name]()
