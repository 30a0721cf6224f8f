"""Comparing what the mirror believes with what vLLM itself says, a little in every step."""

from __future__ import annotations

from itertools import islice

from pellucid.attach.layout import Layout
from pellucid.attach.mirror import Mirror

BLOCKS_A_STEP = 16
STEPS_A_TABLE = 16


class Rounds:
    """Goes round the pool and the tables: everything is compared in turn, and nothing waits for it.

    Every step: held + reclaimable = usable, by vLLM's own count of free blocks. Then ``BLOCKS_A_STEP`` blocks: the
    owners of each are its occurrences in live tables, and it is findable if vLLM has a hash for it. Every
    ``STEPS_A_TABLE`` steps one whole table.
    """

    def __init__(self, layout: Layout, mirror: Mirror) -> None:
        self._layout = layout
        self._mirror = mirror
        self._next_block = 1
        self._next_table = 0

    def check(self) -> list[str]:
        """What does not add up after this step, a sentence each; mostly nothing."""
        mirror = self._mirror
        free = self._layout.pool.get_num_free_blocks()
        wrong = self._blocks()
        if free != mirror.reclaimable:
            wrong.append(
                f"vLLM counts {free} free blocks where {mirror.reclaimable} have no owner (step {mirror.step})."
            )
        if mirror.requests and mirror.step % STEPS_A_TABLE == 0:
            wrong += self._table()
        return wrong

    def _blocks(self) -> list[str]:
        mirror, blocks = self._mirror, self._layout.blocks
        first = self._next_block
        last = min(first + BLOCKS_A_STEP, len(blocks))
        self._next_block = last if last < len(blocks) else 1
        wrong = []
        for number in range(first, last):
            block = blocks[number]
            if block.ref_cnt != mirror.owners[number]:
                wrong.append(f"block {number} has {block.ref_cnt} owners and stands in {mirror.owners[number]} tables.")
            if (block.block_hash is None) != (mirror.contents[number] is None):
                has = "no hash and was" if block.block_hash is None else "a hash and was not"
                wrong.append(f"block {number} has {has} seen to be findable.")
        return wrong

    def _table(self) -> list[str]:
        mirror = self._mirror
        self._next_table = (self._next_table + 1) % len(mirror.requests)
        seen = next(islice(mirror.requests.values(), self._next_table, None))
        now = self._layout.tables(seen.id)
        if now != tuple(map(tuple, seen.tables)):
            return [f"vLLM's table of {seen.name!r} is {now}, and {seen.tables} was seen to grow."]
        return []
