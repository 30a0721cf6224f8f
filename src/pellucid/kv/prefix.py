"""The prefix index: from a block's identity to the blocks that hold it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Generic, TypeVar

from pellucid.kv.block import Content

Holder = TypeVar("Holder")
"""What stands for a block: our own is a `Block`, one of an observed engine its number."""


class PrefixIndex(Generic[Holder]):
    """Findable blocks by identity; equal blocks are not merged, and the oldest is found."""

    def __init__(self) -> None:
        self._blocks: dict[bytes, list[Holder]] = {}
        self._spaces: dict[bytes, dict[bytes, int]] = {}  # plain identity -> namespace, if it is one -> blocks

    def __len__(self) -> int:
        return len(self._blocks)

    def __contains__(self, identity: bytes) -> bool:
        return identity in self._blocks

    def __iter__(self) -> Iterator[tuple[bytes, list[Holder]]]:
        return iter(self._blocks.items())

    def find(self, identity: bytes) -> Holder | None:
        """The block that has held ``identity`` for longest, or None."""
        blocks = self._blocks.get(identity)
        return blocks[0] if blocks else None

    def elsewhere(self, plain: bytes, space: bytes) -> bool:
        """Whether another namespace than ``space`` holds the tokens that ``plain`` stands for."""
        if space and plain in self._blocks:  # without a namespace, identity and plain identity are the same
            return True
        return any(other != space for other in self._spaces.get(plain, ()))

    def add(self, block: Holder, content: Content) -> None:
        self._blocks.setdefault(content.identity, []).append(block)
        if content.namespace:
            spaces = self._spaces.setdefault(content.plain, {})
            spaces[content.namespace] = spaces.get(content.namespace, 0) + 1

    def replace(self, block: Holder, by: Holder, content: Content) -> None:
        """``content`` is now in ``by`` instead of ``block``, and as old as it was."""
        blocks = self._blocks[content.identity]
        blocks[blocks.index(block)] = by

    def discard(self, block: Holder, content: Content) -> None:
        blocks = self._blocks[content.identity]
        blocks.remove(block)
        if not blocks:
            del self._blocks[content.identity]
        if content.namespace:
            self._leave(self._spaces[content.plain], content)

    def _leave(self, spaces: dict[bytes, int], content: Content) -> None:
        spaces[content.namespace] -= 1
        if not spaces[content.namespace]:
            del spaces[content.namespace]
            if not spaces:
                del self._spaces[content.plain]
