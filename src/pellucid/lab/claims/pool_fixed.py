"""Claim: the pool is allocated once."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from pellucid.lab.claim import Claim, Recordings
from pellucid.lab.proof import Finding, Verdict, not_observable, refuted
from pellucid.lab.recording import Frame, Recording
from pellucid.lab.scenario import MIXED, SCENARIOS

Engine = list[Recording]


def judge(recordings: Recordings) -> Finding:
    """Address, bytes and blocks at every step of every engine, while blocks came and went."""
    engines = _by_engine(recordings)
    seen = []
    for engine in engines:
        if change := _change(engine):
            return refuted(change)
        if engine[0].frames[0].memory is None:
            return not_observable("This engine does not show where its pool is.")
        taken, returned = _moves(engine)
        if not (taken and returned):
            return not_observable(f"{taken} blocks were taken and {returned} returned: the pool was not put to use.")
        seen.append(_evidence(engine, taken, returned))
    steps = sum(row["steps"] for row in seen)
    return Finding(
        Verdict.PROVED,
        "Address, bytes and number of blocks were the same after every step.",
        f"{steps} steps of {len(engines)} engines, {engines[0][0].usable:,} usable blocks each",
        tuple(fact for row in seen for fact in _facts(row)),
        {"engines": seen},
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
            where = f"after step {frame.step} of the scenario {recording.scenario!r}"
            if frame.memory != first.memory:
                return f"The pool was {_place(first)} and is now {_place(frame)}, {where}."
            if frame.snapshot.pool.total != first.snapshot.pool.total:
                return f"The pool had {first.snapshot.pool.total} blocks and has {frame.snapshot.pool.total} {where}."
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
        "prefix_caching": engine[0].about.prefix_caching,
        "address": frame.memory.address,
        "bytes": frame.memory.nbytes,
        "blocks": frame.snapshot.pool.total,
        "steps": sum(recording.steps for recording in engine),
        "readings": sum(len(recording.frames) for recording in engine),
        "taken": taken,
        "returned": returned,
    }


def _facts(row: dict[str, Any]) -> list[tuple[str, str]]:
    caching = "on" if row["prefix_caching"] else "off"
    return [
        (f"caching {caching}", f"at {row['address']:#x}, {row['bytes']:,} bytes, {row['blocks']:,} blocks"),
        ("", f"the same in all {row['readings']} readings over {row['steps']} steps"),
        ("", f"meanwhile {row['taken']:,} blocks were taken and {row['returned']:,} returned"),
    ]


def _place(frame: Frame) -> str:
    return f"{frame.memory.nbytes:,} bytes at {frame.memory.address:#x}" if frame.memory else "nowhere to be seen"


POOL_FIXED = Claim(
    "pool-fixed",
    "The pool is fixed",
    "KV memory is allocated once. Its address and its size never change; only the owners of its blocks do.",
    (MIXED,),
    judge,
    also=SCENARIOS,
)
