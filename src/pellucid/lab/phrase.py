"""The parts of sentences about blocks and tokens: how many, which, and what became of them."""

from __future__ import annotations

from collections.abc import Sequence

from pellucid.kv.block import BlockState
from pellucid.kv.snapshot import Snapshot
from pellucid.lang import Sentence, say
from pellucid.view import runs


def tokens(n: int) -> Sentence:
    return say("1 token") if n == 1 else say("{n} tokens", n=n)


def count(n: int) -> Sentence:
    return say("1 block") if n == 1 else say("{n} blocks", n=n)


def more(n: int) -> Sentence:
    return say("1 more block") if n == 1 else say("{n} more blocks", n=n)


def blocks(blocks: Sequence[int]) -> Sentence:
    return say("block {block}", block=blocks[0]) if len(blocks) == 1 else say("blocks {blocks}", blocks=runs(blocks))


def reclaimable(now: Snapshot) -> Sentence:
    free, cached = now.pool.count(BlockState.FREE), now.pool.count(BlockState.CACHED)
    room = say("1 is reclaimable") if free + cached == 1 else say("{n} are reclaimable", n=free + cached)
    return say("{room} ({free} free, {cached} cached)", room=room, free=free, cached=cached) if cached else room


def held_by(name: str | None, blocks: Sequence[int]) -> Sentence:
    if len(blocks) == 1:
        block = blocks[0]
        return (
            say("{block} was held last by {name}", block=block, name=name)
            if name
            else say("{block} was unused", block=block)
        )
    ids = runs(blocks)
    return (
        say("{blocks} were held last by {name}", blocks=ids, name=name)
        if name
        else say("{blocks} were unused", blocks=ids)
    )


def stay(blocks: Sequence[int]) -> Sentence:
    if len(blocks) == 1:
        return say("{block} stays with its other owners", block=blocks[0])
    return say("{blocks} stay with their other owners", blocks=runs(blocks))


def cached(blocks: Sequence[int]) -> Sentence:
    if len(blocks) == 1:
        return say("{block} stays cached, to be found again", block=blocks[0])
    return say("{blocks} stay cached, to be found again", blocks=runs(blocks))


def free(blocks: Sequence[int]) -> Sentence:
    return (
        say("{block} is free", block=blocks[0]) if len(blocks) == 1 else say("{blocks} are free", blocks=runs(blocks))
    )


def fenced(blocks: Sequence[int], step: int) -> Sentence:
    if len(blocks) == 1:
        return say("{block} is fenced, as step {step} may still write there", block=blocks[0], step=step)
    return say("{blocks} are fenced, as step {step} may still write there", blocks=runs(blocks), step=step)
