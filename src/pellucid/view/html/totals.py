"""The pool in numbers, as one sentence."""

from __future__ import annotations

from typing import NamedTuple

from pellucid.kv.block import BlockState
from pellucid.kv.snapshot import Snapshot
from pellucid.lang import Sentence, say
from pellucid.view.html.markup import Element, element


class Totals(NamedTuple):
    """Blocks by state, tokens in tables (a shared one counts for each owner) and slots that hold none."""

    held: int
    cached: int
    free: int
    fenced: int
    tokens: int
    waste: int

    @classmethod
    def of(cls, snapshot: Snapshot) -> Totals:
        states = snapshot.pool.states
        return cls(
            held=states.count(BlockState.HELD),
            cached=states.count(BlockState.CACHED),
            free=states.count(BlockState.FREE),
            fenced=states.count(BlockState.FENCED),
            tokens=sum(request.slots for request in snapshot.requests),
            waste=snapshot.waste,
        )


def totals_sentence(snapshot: Snapshot) -> Sentence:
    """The numbers of ``snapshot`` in a sentence."""
    return sentence(**Totals.of(snapshot)._asdict())


def sentence(*, held: object, cached: object, free: object, fenced: object, tokens: object, waste: object) -> Sentence:
    """The sentence with these in the places of the numbers."""
    return say(
        "{held} blocks held, {cached} cached, {free} free, {fenced} fenced; {tokens} tokens in tables, "
        "{waste} slots of waste.",
        held=held, cached=cached, free=free, fenced=fenced, tokens=tokens, waste=waste,
    )  # fmt: skip


def totals(snapshot: Snapshot) -> Element:
    """The sentence as a paragraph."""
    return element("p", totals_sentence(snapshot), class_="totals")
