"""The pool in numbers."""

from __future__ import annotations

from rich.text import Text

from pellucid.kv.block import BlockState
from pellucid.kv.snapshot import Snapshot
from pellucid.view.lines import flow


def totals(snapshot: Snapshot, width: int = 80) -> list[Text]:
    """Blocks by state, tokens with a slot, and slots that hold none. A shared token counts for each of its owners."""
    pool = snapshot.pool
    tokens = sum(request.slots for request in snapshot.requests)
    reserved, held, cached, free, fenced = (
        pool.count(state)
        for state in (BlockState.RESERVED, BlockState.HELD, BlockState.CACHED, BlockState.FREE, BlockState.FENCED)
    )
    blocks = [
        f"{pool.total:,} blocks = {reserved} reserved + {pool.usable:,} usable",
        f"{held:,} held, {cached:,} cached, {free:,} free, {fenced:,} fenced",
    ]
    slots = [f"{pool.reclaimable:,} reclaimable", f"{tokens:,} tokens in tables", f"{snapshot.waste:,} slots of waste"]
    return [*_sentence(blocks, width), *_sentence(slots, width)]


def _sentence(parts: list[str], width: int) -> list[Text]:
    return flow(map(Text, parts), width, gap="; ")
