"""The block pool: who owns which block. The only place where an owner count changes."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence

from pellucid.errors import ConfigError
from pellucid.kv.block import RESERVED_BLOCK, Block, Content
from pellucid.kv.policy import ReusePolicy, reuse_policy
from pellucid.kv.prefix import PrefixIndex


class BlockPool:
    """``num_blocks`` blocks, block 0 of them reserved, under one re-use policy.

    ``taken`` and ``returned`` count table references ever made and given up: their difference is
    what is held now (invariant I9). ``shuffle`` seeds a random order of first use; None: ascending ids.
    """

    def __init__(self, num_blocks: int, policy: str = "free-first", shuffle: int | None = None) -> None:
        if num_blocks < 2:
            raise ConfigError(
                f"a pool of {num_blocks} block(s) holds nothing: block 0 is reserved, so ask for at least 2."
            )
        self.blocks = [Block(i) for i in range(num_blocks)]
        self.reclaimable: ReusePolicy = reuse_policy(policy)
        first_use = self.blocks[RESERVED_BLOCK + 1 :]
        if shuffle is not None:
            random.Random(shuffle).shuffle(first_use)
        self.reclaimable.put(first_use)
        self.index: PrefixIndex[Block] = PrefixIndex()
        self.fenced: dict[int, list[Block]] = {}  # launched step -> blocks, last of their table first
        self.taken = 0
        self.returned = 0

    @property
    def usable(self) -> int:
        return len(self.blocks) - 1

    def take(self, count: int) -> list[Block]:
        """Give ``count`` reclaimable blocks their first owner; the caller has checked that they are there.

        A block that comes with content must be `unpublish`ed by the caller, who knows for whom.
        """
        blocks = self.reclaimable.take(count)
        for block in blocks:
            block.owners = 1
        self.taken += count
        return blocks

    def share(self, blocks: Sequence[Block]) -> None:
        """Add one owner to each found block, reviving those that have none."""
        for block in blocks:
            if block.owners == 0:
                self.reclaimable.remove(block)
            block.owners += 1
        self.taken += len(blocks)

    def give_back(self, blocks: Sequence[Block], fence: int = 0, written: frozenset[int] = frozenset()) -> list[Block]:
        """Drop one owner of each block; ``blocks`` come last of their table first.

        Launched steps up to ``fence`` may still write to the blocks whose id is in ``written``: without
        an owner, these stay out of use until that step is committed. Those that do are returned (a
        block whose writer has left may be among them later, when the last of its readers leaves).
        """
        ownerless: list[Block] = []
        held_back: list[Block] = []
        for block in blocks:
            if block.id in written:
                block.fence = fence
                self.fenced.setdefault(fence, []).append(block)
            block.owners -= 1
            if block.owners == 0:
                (held_back if block.fence else ownerless).append(block)
        self.returned += len(blocks)
        self.reclaimable.put(ownerless)
        return held_back

    def move(self, block: Block, to: Block, fence: int = 0) -> None:
        """All owners and the content of ``block`` go to ``to``, which has neither and is not in the order of re-use.

        ``block`` is returned without content, once the launched steps up to ``fence`` that may still write
        to it are committed.
        """
        to.owners, block.owners = block.owners, 0
        if block.content is not None:
            self.index.replace(block, to, block.content)
            to.content, block.content = block.content, None
        if fence:
            block.fence = fence
            self.fenced.setdefault(fence, []).append(block)
        if not block.fence:  # else it was fenced now, or when the request that writes to it left
            self.reclaimable.put([block])

    def lift_fence(self, step: int) -> list[Block]:
        """Step ``step`` has been committed: nothing can write any more to the blocks returned here."""
        blocks = self.fenced.pop(step, [])
        for block in blocks:
            block.fence = 0
        self.reclaimable.put([block for block in blocks if block.owners == 0])
        return blocks

    def publish(self, block: Block, content: Content) -> None:
        """Make ``block`` findable as ``content``."""
        block.content = content
        self.index.add(block, content)

    def unpublish(self, blocks: Iterable[Block]) -> None:
        """The content of ``blocks``, held or fenced, is gone: nobody finds them any more."""
        for block in blocks:
            content = block.content
            assert content is not None
            self.index.discard(block, content)
            block.content = None
