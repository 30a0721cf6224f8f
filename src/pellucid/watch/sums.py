"""The pool and the prefix cache in numbers, each with what it is a part of."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from rich.cells import cell_len
from rich.text import Text

from pellucid.kv.acts import LookupKind, MissReason
from pellucid.kv.block import BlockState
from pellucid.kv.snapshot import HitCount, Snapshot
from pellucid.lang import Sentence, clauses, phrases, say, told
from pellucid.view.lines import padded, wrapped

KINDS = {
    LookupKind.FIRST: say("first"),
    LookupKind.RESUME: say("resume"),
    LookupKind.BYPASS: say("bypass"),
}
REASONS = {
    MissReason.NEVER_SEEN: say("never seen"),
    MissReason.EVICTED: say("evicted"),
    MissReason.WITHDRAWN: say("withdrawn"),
    MissReason.LAST_BLOCK: say("last-block rule"),
    MissReason.SHORT: say("shorter than a block"),
    MissReason.NAMESPACE: say("other salt or adapter"),
    MissReason.BYPASS: say("bypass"),
    MissReason.UNKNOWN: say("unknown"),
}


def sums(snapshot: Snapshot, width: int = 80, language: str = "en") -> list[Text]:
    """Blocks by state, usage in blocks beside usage in tokens, hits of each kind of lookup, misses by reason."""
    labelled = [
        (say("pool"), size(snapshot)),
        (say("blocks"), states(snapshot)),
        (say("use"), usage(snapshot)),
        (say("hits"), hits(snapshot)),
    ]
    if snapshot.missed:
        labelled.append((say("misses"), misses(snapshot.missed)))
    indent = max(cell_len(told(label, language)) for label, _ in labelled) + 2
    return [line for label, text in labelled for line in _paragraph(label, text, indent, width, language)]


def size(snapshot: Snapshot) -> Sentence:
    """How many blocks there are, and how many of them requests can ever hold."""
    pool = snapshot.pool
    return say(
        "{total:,} blocks of {size} tokens = {reserved} reserved + {usable:,} usable",
        total=pool.total,
        size=pool.block_size,
        reserved=pool.total - pool.usable,
        usable=pool.usable,
    )


def states(snapshot: Snapshot) -> Sentence:
    """The usable blocks by state."""
    count = Counter(snapshot.pool.states)
    return say(
        "{held:,} held, {cached:,} cached, {free:,} free, {fenced:,} fenced",
        held=count[BlockState.HELD],
        cached=count[BlockState.CACHED],
        free=count[BlockState.FREE],
        fenced=count[BlockState.FENCED],
    )


def usage(snapshot: Snapshot) -> str:
    """Blocks held of those usable, and tokens in them of the slots there are: a shared token counts once.

    Where the blocks of KV groups have different sizes a pool has no number of slots, and only blocks are counted.
    """
    pool = snapshot.pool
    held = pool.held
    parts = [say("{held:,} of {usable:,} blocks ({rate:.1%})", held=held, usable=pool.usable, rate=held / pool.usable)]
    if {group.block_size for group in snapshot.groups} == {pool.block_size}:
        tokens, slots = held * pool.block_size - snapshot.waste, pool.usable * pool.block_size
        parts.append(say("{tokens:,} of {slots:,} slots ({rate:.1%})", tokens=tokens, slots=slots, rate=tokens / slots))
    return clauses([*parts, say("{n:,} wasted", n=snapshot.waste)])


def hits(snapshot: Snapshot) -> str:
    """Tokens hit of tokens asked for, each kind of lookup apart."""
    if not snapshot.prefix_caching:
        return say("prefix caching is off")
    counted = [_hit(kind, snapshot.hits[kind]) for kind in LookupKind if kind in snapshot.hits]
    return clauses(counted) if counted else say("nothing asked yet")


def _hit(kind: LookupKind, count: HitCount) -> str:
    rate = count.hit / count.asked if count.asked else 0.0
    return say(
        "{kind} {hit:,} of {asked:,} tokens ({rate:.1%})", kind=KINDS[kind], hit=count.hit, asked=count.asked, rate=rate
    )


def misses(missed: dict[MissReason, int]) -> str:
    """Tokens by reason; every token that was asked for and not hit has one."""
    return phrases([say("{reason} {n:,}", reason=REASONS[reason], n=missed[reason]) for reason in _ordered(missed)])


def _ordered(missed: dict[MissReason, int]) -> Iterator[MissReason]:
    return (reason for reason in MissReason if missed.get(reason))


def _paragraph(label: str, text: str, indent: int, width: int, language: str) -> Iterator[Text]:
    head = padded(told(label, language), indent)
    for i, line in enumerate(wrapped(told(text, language), width - indent)):
        yield Text.assemble((head if i == 0 else " " * indent, "dim"), line)
