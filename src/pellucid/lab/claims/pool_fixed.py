"""Claim: the pool is allocated once."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from pellucid.lab.claim import Claim, Recordings
from pellucid.lab.proof import Finding, Table, Verdict, not_observable, refuted
from pellucid.lab.recording import Frame, Recording
from pellucid.lab.scenarios import MIXED, SCENARIOS
from pellucid.lang import say

Engine = list[Recording]


def judge(recordings: Recordings) -> Finding:
    """Address, bytes and blocks at every step of every engine, while blocks came and went."""
    engines = _by_engine(recordings)
    seen = []
    for engine in engines:
        if change := _change(engine):
            return refuted(change)
        if engine[0].frames[0].memory is None:
            return not_observable(say("This engine does not show where its pool is."))
        taken, returned = _moves(engine)
        if not (taken and returned):
            return not_observable(
                say(
                    "{taken} blocks were taken and {returned} returned: the pool was not put to use.",
                    taken=taken,
                    returned=returned,
                )
            )
        seen.append(_evidence(engine, taken, returned))
    steps = sum(row["steps"] for row in seen)
    return Finding(
        Verdict.PROVED,
        say("Address, bytes and number of blocks were the same after every step."),
        say(
            "{steps} steps of {engines} engines, {least:,} to {most:,} usable blocks",
            steps=steps,
            engines=len(engines),
            least=min(row["blocks"] for row in seen) - 1,
            most=max(row["blocks"] for row in seen) - 1,
        ),
        _facts(seen),
        {"engines": seen},
        tables=(_table(seen),),
    )


def _by_engine(recordings: Recordings) -> list[Engine]:
    engines: dict[int, Engine] = {}
    for recording in recordings.values():
        engines.setdefault(recording.engine, []).append(recording)
    return list(engines.values())


def _change(engine: Engine) -> str | None:
    """The first reading that is not what the first one was, in a sentence."""
    first = engine[0].frames[0]
    for recording in engine:
        for frame in recording.frames:
            where = say("after step {step} of the scenario {scenario!r}", step=frame.step, scenario=recording.scenario)
            if frame.memory != first.memory:
                return say(
                    "The pool was {before} and is now {now}, {where}.",
                    before=_place(first),
                    now=_place(frame),
                    where=where,
                )
            if frame.snapshot.pool.total != first.snapshot.pool.total:
                return say(
                    "The pool had {before} blocks and has {now} {where}.",
                    before=first.snapshot.pool.total,
                    now=frame.snapshot.pool.total,
                    where=where,
                )
    return None


def _moves(engine: Engine) -> tuple[int, int]:
    """Blocks that came into some table, and that left the last, from each frame to the next."""
    taken = returned = 0
    for recording in engine:
        for before, after in pairwise(recording.frames):
            held, holds = ({b for r in frame.snapshot.requests for b in r.blocks} for frame in (before, after))
            taken += len(holds - held)
            returned += len(held - holds)
    return taken, returned


def _evidence(engine: Engine, taken: int, returned: int) -> dict[str, Any]:
    frame = engine[0].frames[0]
    assert frame.memory is not None
    return {
        "scenarios": [recording.scenario for recording in engine],
        "prefix_caching": engine[0].about.prefix_caching,
        "address": frame.memory.address,
        "bytes": frame.memory.nbytes,
        "blocks": frame.snapshot.pool.total,
        "steps": sum(recording.steps for recording in engine),
        "readings": sum(len(recording.frames) for recording in engine),
        "taken": taken,
        "returned": returned,
    }


def _facts(seen: list[dict[str, Any]]) -> tuple[tuple[str, str], ...]:
    readings, steps = sum(row["readings"] for row in seen), sum(row["steps"] for row in seen)
    taken, returned = sum(row["taken"] for row in seen), sum(row["returned"] for row in seen)
    return (
        (
            say("all of it"),
            say("the same in all {readings:,} readings over {steps} steps", readings=readings, steps=steps),
        ),
        (
            say("meanwhile"),
            say("{taken:,} blocks were taken and {returned:,} returned", taken=taken, returned=returned),
        ),
    )


def _table(seen: list[dict[str, Any]]) -> Table:
    """A row an engine, under the first scenario that it played."""
    rows = [
        (
            row["scenarios"][0],
            say("on") if row["prefix_caching"] else say("off"),
            f"{row['address']:#x}",
            f"{row['bytes']:,}",
            f"{row['blocks']:,}",
            f"{row['readings']:,}",
            f"{row['taken']:,}",
        )
        for row in seen
    ]
    header = (say("engine"), say("cache"), say("address"), say("bytes"), say("blocks"), say("readings"), say("taken"))
    return Table(header, tuple(rows))


def _place(frame: Frame) -> str:
    if not frame.memory:
        return say("nowhere to be seen")
    return say("{bytes:,} bytes at {address:#x}", bytes=frame.memory.nbytes, address=frame.memory.address)


POOL_FIXED = Claim(
    "pool-fixed",
    say("The pool is fixed"),
    say("KV memory is allocated once. Its address and its size never change; only the owners of its blocks do."),
    (MIXED,),
    judge,
    also=SCENARIOS,
)
