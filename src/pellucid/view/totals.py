"""The pool in numbers."""

from __future__ import annotations

from collections import Counter

from rich.text import Text

from pellucid.kv.block import BlockState
from pellucid.kv.snapshot import Snapshot
from pellucid.lang import Sentence, say, told
from pellucid.view.lines import wrapped


def totals(snapshot: Snapshot, width: int = 80, language: str = "en") -> list[Text]:
    """Blocks by state, tokens with a slot, and slots that hold none. A shared token counts for each of its owners."""
    sentences = _blocks(snapshot), _slots(snapshot)
    return [Text(line) for sentence in sentences for line in wrapped(told(sentence, language), width)]


def _blocks(snapshot: Snapshot) -> Sentence:
    pool = snapshot.pool
    count = Counter(pool.states)
    return say(
        "{total:,} blocks = {reserved} reserved + {usable:,} usable; "
        "{held:,} held, {cached:,} cached, {free:,} free, {fenced:,} fenced",
        total=pool.total,
        reserved=count[BlockState.RESERVED],
        usable=pool.usable,
        held=count[BlockState.HELD],
        cached=count[BlockState.CACHED],
        free=count[BlockState.FREE],
        fenced=count[BlockState.FENCED],
    )


def _slots(snapshot: Snapshot) -> Sentence:
    return say(
        "{reclaimable:,} reclaimable; {tokens:,} tokens in tables; {waste:,} slots of waste",
        reclaimable=snapshot.pool.reclaimable,
        tokens=sum(request.slots for request in snapshot.requests),
        waste=snapshot.waste,
    )
