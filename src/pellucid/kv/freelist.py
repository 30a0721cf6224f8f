"""A doubly linked list threaded through the blocks themselves."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pellucid.kv.block import Block


class FreeList:
    """Ownerless blocks in the order they will be given out, front first.

    Every operation is O(1) per block and allocates nothing. A sentinel closes the chain to a
    ring, so that no operation has a special case for an end.
    """

    __slots__ = ("_ring", "_size")

    def __init__(self) -> None:
        ring = Block(-1)
        ring.prev = ring.next = ring
        self._ring = ring
        self._size = 0

    def __len__(self) -> int:
        return self._size

    def __iter__(self) -> Iterator[Block]:
        block = self._ring.next
        while block is not self._ring:
            assert block is not None, "a block of this list was unlinked behind its back"
            yield block
            block = block.next

    def append(self, blocks: Sequence[Block]) -> None:
        """Add ``blocks`` at the back, in their order."""
        self._link(self._ring.prev, blocks, self._ring)

    def prepend(self, blocks: Sequence[Block]) -> None:
        """Add ``blocks`` at the front, in their order: the first of them becomes the front."""
        self._link(self._ring, blocks, self._ring.next)

    def _link(self, before: Block | None, blocks: Sequence[Block], after: Block | None) -> None:
        assert before is not None
        assert after is not None
        for block in blocks:
            block.prev = before
            before.next = block
            before = block
        before.next = after
        after.prev = before
        self._size += len(blocks)

    def take(self, count: int) -> list[Block]:
        """Unlink and return the ``count`` front blocks; the caller knows that there are so many."""
        ring = self._ring
        taken: list[Block] = []
        block = ring.next
        for _ in range(count):
            assert block is not None
            taken.append(block)
            block = block.next
        assert block is not None
        ring.next = block
        block.prev = ring
        self._size -= count
        return taken

    def remove(self, block: Block) -> None:
        """Unlink ``block`` from wherever it stands."""
        before, after = block.prev, block.next
        assert before is not None
        assert after is not None
        before.next = after
        after.prev = before
        block.prev = block.next = None
        self._size -= 1
