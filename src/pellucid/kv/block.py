"""One block of KV memory, as the accounting sees it: an id, its owners and its content."""

from __future__ import annotations

import enum

from msgspec import Struct

from pellucid.errors import ConfigError

RESERVED_BLOCK = 0
"""Block 0 is never handed out: padding rows write there."""


MAX_BLOCK_SIZE = 256


def check_block_size(block_size: int) -> None:
    """Raise `ConfigError` unless ``block_size`` is a power of two from 1 to ``MAX_BLOCK_SIZE``."""
    if not 1 <= block_size <= MAX_BLOCK_SIZE or block_size & (block_size - 1):
        raise ConfigError(
            f"block_size {block_size} is not supported; choose a power of two from 1 to {MAX_BLOCK_SIZE}."
        )


class BlockState(enum.StrEnum):
    """Every block is in exactly one of these states (invariant I1)."""

    RESERVED = "reserved"  # block 0
    HELD = "held"  # at least one owner
    CACHED = "cached"  # no owner, content worth keeping, findable
    FREE = "free"  # no owner, no content
    FENCED = "fenced"  # no owner, but a launched step may still write to it


class Content(Struct, frozen=True, gc=False):
    """What a full block holds, and hence what a prefix lookup may find.

    ``identity`` is the block's SHA-256 chain value, ``parent`` that of the block before it in the
    same prompt, ``tokens`` its ``block_size`` token ids, ``namespace`` the encoded salt and adapter,
    ``plain`` the identity the same tokens would have without any namespace.
    """

    identity: bytes
    parent: bytes
    tokens: tuple[int, ...]
    namespace: bytes
    plain: bytes


class Block:
    """One physical block. Only `BlockPool` and the free list it keeps write to these fields.

    ``prev`` and ``next`` chain the block into a `FreeList` while nobody owns it; being part of the
    block itself they make removal from the middle O(1) without any allocation.
    ``fence`` is the launched step that may still write to a block whose writer has left, 0 if none.
    """

    __slots__ = ("content", "fence", "id", "next", "owners", "prev")

    def __init__(self, block_id: int) -> None:
        self.id = block_id
        self.owners = 0
        self.content: Content | None = None
        self.fence = 0
        self.prev: Block | None = None
        self.next: Block | None = None

    @property
    def state(self) -> BlockState:
        if self.id == RESERVED_BLOCK:
            return BlockState.RESERVED
        if self.owners:
            return BlockState.HELD
        if self.fence:
            return BlockState.FENCED
        return BlockState.FREE if self.content is None else BlockState.CACHED

    def __repr__(self) -> str:
        return f"Block({self.id}, {self.state}, owners={self.owners})"
