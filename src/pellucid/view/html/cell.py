"""What is drawn for one block: a character, an appearance and what they mean."""

from __future__ import annotations

from typing import NamedTuple

from pellucid.kv.block import BlockState
from pellucid.kv.snapshot import Snapshot
from pellucid.lang import say
from pellucid.view.block_map import MANY, MARKS, STATES, UNKNOWN_OWNER
from pellucid.view.letters import Letters, shown

NAME_WIDTH = 64


class Cell(NamedTuple):
    """``character`` as in the terminal's map; ``kind`` is the class that the style sheet colours it by."""

    character: str
    kind: str
    meaning: str


def cells(snapshot: Snapshot, letters: Letters) -> list[Cell]:
    """One cell for every block, with the marks of `pellucid.view.marks`."""
    pool = snapshot.pool
    owners = {name: owner_cell(name, letters) for name in (request.name for request in snapshot.requests)}
    owner = {block: owners[request.name] for request in snapshot.requests for block in request.held}
    states = {state: Cell(character, state.value, STATES[state]) for state, (character, _) in MARKS.items()}
    return [
        states[state]
        if state is not BlockState.HELD
        else shared_cell(pool.owners[block])
        if pool.owners[block] > 1
        else owner.get(block, NOBODY)
        for block, state in enumerate(pool.states)
    ]


def owner_cell(name: str, letters: Letters) -> Cell:
    """A block that ``name`` alone holds."""
    return Cell(letters.letter(name), f"k{letters.colour(name)}", shown(name, NAME_WIDTH))


def shared_cell(owners: int) -> Cell:
    """A block of ``owners`` requests."""
    if owners < 10:
        return Cell(str(owners), "shared", say("shared by {owners}", owners=owners))
    return Cell(MANY, "shared", say("shared by 10 or more"))


NOBODY = Cell(UNKNOWN_OWNER, "unknown", say("held by nobody known"))
