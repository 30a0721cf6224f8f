"""Claim: where a block lies does not matter, nor that it moves while its request runs."""

from __future__ import annotations

from typing import Any, NamedTuple

from pellucid.kv.block import BlockState
from pellucid.lab.claim import Claim, Recordings
from pellucid.lab.claims.same_output import different_output
from pellucid.lab.proof import Exhibit, Finding, Table, Verdict, not_observable, refuted
from pellucid.lab.recording import Frame, Recording
from pellucid.lab.scenarios.placement import AFTER, MOVED, PLACED, SHUFFLED
from pellucid.lang import say
from pellucid.view import runs


class Move(NamedTuple):
    """``block`` of ``owners`` went to ``to`` between the frames ``before`` and ``after``.

    ``filled`` are the tokens in it, None if it was full; ``state`` is what ``to`` was before; ``vacated`` says
    that another live block had been there until the moves before.
    """

    block: int
    to: int
    owners: tuple[str, ...]
    filled: int | None
    state: BlockState
    vacated: bool
    before: Frame
    after: Frame


def judge(recordings: Recordings) -> Finding:
    """Tables must really differ, every move must be what it says, and all answers must be those of the plain run."""
    plain, shuffled, moved = (recordings[scenario.name] for scenario in (PLACED, SHUFFLED, MOVED))
    elsewhere = [name for name in plain.requests if _table(plain, name) != _table(shuffled, name)]
    if not elsewhere:
        return not_observable(say("With shuffled ids every request got the blocks that it has without."))
    moves = _moves(moved)
    if isinstance(moves, Finding):
        return moves
    if missing := _missing(moved, moves):
        return not_observable(missing)
    for run in (shuffled, moved):
        if other := different_output(run, plain, plain.requests, say("with its blocks in order")):
            return other
    return _proved(plain, shuffled, moved, moves)


def _table(run: Recording, name: str) -> tuple[int, ...]:
    """The blocks of ``name`` when its prompt had just got them."""
    index = run.served(name)
    return () if index is None else run.frames[index].blocks(name)


def _moves(run: Recording) -> list[Move] | Finding:
    """What was moved; refuted if something else than that happened to a table."""
    found: list[Move] = []
    left: dict[int, int] = {}  # where the blocks went that were moved last time
    for before, after in zip(run.frames, run.frames[1:], strict=False):
        if after.moved:
            if wrong := _wrong(before, after):
                return refuted(wrong, exhibits=_pair(before, after))
            found += [_move(run, move, left, before, after) for move in after.moved]
            left = dict(after.moved)
    return found


def _wrong(before: Frame, after: Frame) -> str | None:
    """Each table must be what it was but for the moved blocks, and these must not have been anybody's."""
    tables = {request.name: request.blocks for request in before.snapshot.requests}
    for block, to in after.moved:
        for name, table in tables.items():
            if to in table:
                return say("Block {block} was moved to {to}, which {name} holds.", block=block, to=to, name=name)
            tables[name] = tuple(to if each == block else each for each in table)
    for name, expected in tables.items():
        if after.blocks(name) != expected:
            return say(
                "After the moves the table of {name} must be {expected}, and is {table}.",
                name=name,
                expected=runs(expected),
                table=runs(after.blocks(name)),
            )
    return None


def _move(run: Recording, move: tuple[int, int], left: dict[int, int], before: Frame, after: Frame) -> Move:
    block, to = move
    owners = [request for request in before.snapshot.requests if block in request.blocks]
    last = next((request for request in owners if request.blocks[-1] == block), None)
    filled = last.slots % run.block_size if last else 0
    names = tuple(request.name for request in owners)
    vacated = any(to == place and block != now and before.snapshot.pool.owners[now] for place, now in left.items())
    return Move(block, to, names, filled or None, before.snapshot.pool.state(to), vacated, before, after)


def _missing(run: Recording, moves: list[Move]) -> str | None:
    """What must have been among the moves, and was not."""
    if not any(move.owners for move in moves):
        return say("No live block was moved.")
    if not any(len(move.owners) > 1 for move in moves):
        return say("No block with two live owners was moved.")
    if run.block_size > 1 and not any(move.filled for move in moves):
        return say("No partly filled block was moved.")
    if not any(move.state is BlockState.CACHED for move in moves):
        return say("No block was moved to where a cached one was.")
    if not any(move.vacated for move in moves):
        return say("No block was moved to where another live one had just been.")
    return None


def _proved(plain: Recording, shuffled: Recording, moved: Recording, moves: list[Move]) -> Finding:
    found = sorted(set(_table(moved, AFTER)) & {move.to for move in moves})
    evidence: dict[str, Any] = {
        "tables": {
            name: {run.scenario: list(_table(run, name)) for run in (plain, shuffled, moved)} for name in plain.requests
        },
        "moves": [
            {
                "step": move.after.step,
                "block": move.block,
                "to": move.to,
                "owners": list(move.owners),
                "partly_filled": move.filled is not None,
                "was": move.state,
                "vacated": move.vacated,
            }
            for move in moves
        ],
        "found_where_moved": found,
        "output": {name: list(plain.outputs[name].tokens) for name in plain.requests},
    }
    return Finding(
        Verdict.PROVED,
        say(
            "{n} requests gave the same tokens in order, shuffled, and with {moves} moves of live blocks in mid-run.",
            n=len(plain.requests),
            moves=len(moves),
        ),
        say(
            "{steps} steps, {usable:,} usable blocks, {requests} requests, three times",
            steps=plain.steps + shuffled.steps + moved.steps,
            usable=plain.usable,
            requests=len(plain.requests),
        ),
        _facts(moves, found),
        evidence,
        _exhibits(plain, shuffled, moves),
        (_places(plain, shuffled, moved), _journey(moves)),
    )


def _facts(moves: list[Move], found: list[int]) -> tuple[tuple[str, str], ...]:
    facts = [
        (say("moved"), say("{n} x, a live block each", n=len(moves))),
        (say("  shared"), say("{n} x, for all owners at once", n=sum(len(move.owners) > 1 for move in moves))),
        (say("  partly filled"), say("{n} x", n=sum(move.filled is not None for move in moves))),
        (
            say("  over a cached one"),
            say("{n} x, and that was evicted", n=sum(move.state is BlockState.CACHED for move in moves)),
        ),
        (
            say("  to a vacated place"),
            say("{n} x, where another live block had just been", n=sum(move.vacated for move in moves)),
        ),
    ]
    if found:
        told = say("{name} hit {blocks}, where its prefix had been moved to", name=AFTER, blocks=runs(found))
        facts.append((say("found again"), told))
    return tuple(facts)


def _places(plain: Recording, shuffled: Recording, moved: Recording) -> Table:
    """Of the moved run the last table that was seen. Whoever comes and goes within a step is never seen with one."""
    rows = []
    for name in plain.requests:
        last = next((frame.blocks(name) for frame in reversed(moved.frames) if frame.blocks(name)), ())
        if last:
            rows.append((name, runs(_table(plain, name)), runs(_table(shuffled, name)), runs(last)))
    return Table((say("request"), say("in order"), say("shuffled"), say("moved, at its end")), tuple(rows))


def _journey(moves: list[Move]) -> Table:
    was = {BlockState.FREE: say("free"), BlockState.CACHED: say("cached")}
    rows = tuple(
        (f"{move.after.step}", f"{move.block}", f"{move.to}", was.get(move.state, ""), ", ".join(move.owners))
        for move in moves
    )
    return Table((say("after step"), say("from block"), say("to block"), say("which was"), say("owners")), rows)


def _exhibits(plain: Recording, shuffled: Recording, moves: list[Move]) -> tuple[Exhibit, ...]:
    first = next(move for move in moves if len(move.owners) > 1)
    pictures = [
        Exhibit(say("Step {step}: {how}", step=frame.step, how=how), frame.snapshot)
        for run, how in ((plain, say("in order")), (shuffled, say("shuffled")))
        if (frame := max(run.frames, key=lambda frame: len(frame.running())))
    ]
    return (*pictures, *_pair(first.before, first.after))


def _pair(before: Frame, after: Frame) -> tuple[Exhibit, ...]:
    return (
        Exhibit(say("After step {step}: before the moves", step=before.step), before.snapshot),
        Exhibit(say("After step {step}: after the moves", step=after.step), after.snapshot),
    )


PLACEMENT = Claim(
    "placement",
    say("Placement does not matter"),
    say("With physical ids shuffled, and with live blocks moved in mid-run, requests give the very same tokens."),
    (PLACED, SHUFFLED, MOVED),
    judge,
)
