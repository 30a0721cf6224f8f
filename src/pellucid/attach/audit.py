"""Comparing what the mirror believes with what vLLM itself says, a little at a time."""

from __future__ import annotations

from itertools import islice

from pellucid.attach.layout import Layout
from pellucid.attach.mirror import Mirror

STEPS_A_ROUND = 16
BLOCKS_A_ROUND = 64
A_TABLE = 4  # asking for a table takes as long as comparing so many blocks


class Rounds:
    """Goes round the pool and the tables: everything is compared in turn, and nothing waits for it.

    Every step: held + reclaimable = usable, by vLLM's own count of free blocks. Every ``STEPS_A_ROUND`` steps
    ``BLOCKS_A_ROUND`` blocks, as several at once cost far less than one at a time: the owners of each are its
    occurrences in live tables, and it is findable if vLLM has a hash for it. And whole tables, until they have had
    as many blocks.
    """

    def __init__(self, layout: Layout, mirror: Mirror) -> None:
        self._layout = layout
        self._mirror = mirror
        self._next_block = 1
        self._next_table = 0
        self._gap = 0
        self._known: dict[int, tuple[int, bool]] = {}  # what was said of a block that is wrong
        self._told_of: set[str] = set()  # requests of whose tables it was said

    def check(self) -> list[str]:
        """What does not add up after this step and was not said before, a sentence each; mostly nothing."""
        mirror, wrong = self._mirror, []
        free = self._layout.pool.free_block_queue.num_free_blocks
        if free - mirror.reclaimable != self._gap:
            self._gap = free - mirror.reclaimable
            wrong.append(
                f"vLLM counts {free} free blocks, and {mirror.reclaimable} have no owner (step {mirror.step})."
            )
        if mirror.step % STEPS_A_ROUND == 0:
            mirror.look()
            wrong += self._blocks() + self._tables()
        return wrong

    def _blocks(self) -> list[str]:
        mirror, blocks = self._mirror, self._layout.blocks
        first = self._next_block
        last = min(first + BLOCKS_A_ROUND, len(blocks))
        self._next_block = last if last < len(blocks) else 1
        owners, contents = mirror.owners, mirror.contents
        wrong: list[str] = []
        for number in range(first, last):
            block = blocks[number]
            if block.ref_cnt != owners[number] or (block.block_hash is None) != (contents[number] is None):
                wrong += self._say(number, owners[number], contents[number] is not None)
        return wrong

    def _say(self, number: int, owners: int, findable: bool) -> list[str]:
        """Of a block that is not as it was seen to become; nothing if that was said and is still so."""
        block = self._layout.blocks[number]
        seen = block.ref_cnt - owners, (block.block_hash is not None) != findable
        if self._known.get(number) == seen:
            return []
        self._known[number] = seen
        wrong = []
        if seen[0]:
            wrong.append(f"block {number} has {block.ref_cnt} owners and stands in {owners} tables.")
        if seen[1]:
            has = "a hash and was not" if not findable else "no hash and was"
            wrong.append(f"block {number} has {has} seen to be findable.")
        return wrong

    def _tables(self) -> list[str]:
        mirror, wrong, compared = self._mirror, [], 0
        for _ in range(len(mirror.requests)):
            self._next_table = (self._next_table + 1) % len(mirror.requests)
            seen = next(islice(mirror.requests.values(), self._next_table, None))
            now = self._layout.tables(seen.id)
            if now != seen.blocks and seen.id not in self._told_of:
                self._told_of = {each for each in self._told_of if each in mirror.requests} | {seen.id}
                wrong.append(f"vLLM's table of {seen.name!r} is {now}, and {seen.blocks} was seen to grow.")
            compared += A_TABLE + sum(map(len, now))
            if compared >= BLOCKS_A_ROUND:
                break
        return wrong
