"""Claim: the pool is allocated once."""

from __future__ import annotations

from typing import Any

from pellucid.lab.claim import Claim, Recordings
from pellucid.lab.proof import Finding, Verdict, not_observable, refuted
from pellucid.lab.recording import Frame, Recording
from pellucid.lab.scenario import MIXED, SCENARIOS

Engine = list[tuple[Recording, Frame]]


def judge(recordings: Recordings) -> Finding:
    """Address, bytes and blocks at every step of every engine, while blocks came and went."""
    engines = _by_engine(recordings)
    evidence: dict[str, Any] = {"engines": []}
    facts = []
    for seen in engines:
        if change := _change(seen):
            return refuted(change, evidence=evidence)
        frame, last = seen[0][1], seen[-1][1]
        if frame.memory is None:
            return not_observable("This engine does not show where its pool is.")
        pool, final = frame.snapshot.pool, last.snapshot.pool
        taken, returned = final.taken - pool.taken, final.returned - pool.returned
        if not (taken and returned):
            return not_observable(f"Blocks were taken {taken} times and returned {returned} times: nothing moved.")
        steps = sum(recording.steps for recording in {id(recording): recording for recording, _ in seen}.values())
        caching = "on" if seen[0][0].about.prefix_caching else "off"
        evidence["engines"].append(
            {
                "prefix_caching": caching == "on",
                "address": frame.memory.address,
                "bytes": frame.memory.nbytes,
                "blocks": pool.total,
                "steps": steps,
                "readings": len(seen),
                "taken": taken,
                "returned": returned,
            }
        )
        facts += [
            (
                f"caching {caching}",
                f"at {frame.memory.address:#x}, {frame.memory.nbytes:,} bytes, {pool.total:,} blocks",
            ),
            ("", f"the same in all {len(seen)} readings over {steps} steps"),
            ("", f"meanwhile {taken:,} blocks were taken and {returned:,} returned"),
        ]
    steps = sum(engine["steps"] for engine in evidence["engines"])
    return Finding(
        Verdict.PROVED,
        "Address, bytes and number of blocks were the same after every step.",
        f"{steps} steps of {len(engines)} engines, {engines[0][0][0].usable:,} usable blocks each",
        tuple(facts),
        evidence,
    )


def _by_engine(recordings: Recordings) -> list[Engine]:
    engines: dict[int, Engine] = {}
    for recording in recordings.values():
        engines.setdefault(recording.engine, []).extend((recording, frame) for frame in recording.frames)
    return list(engines.values())


def _change(seen: Engine) -> str | None:
    """The first reading that is not what the first one was, in a sentence."""
    first = seen[0][1]
    for recording, frame in seen:
        where = f"after step {frame.step} of the scenario {recording.scenario!r}"
        if frame.memory != first.memory:
            before, now = first.memory or ("nowhere", 0), frame.memory or ("nowhere", 0)
            return f"The pool was {before[1]:,} bytes at {before[0]} and is {now[1]:,} bytes at {now[0]} {where}."
        if frame.snapshot.pool.total != first.snapshot.pool.total:
            return f"The pool had {first.snapshot.pool.total} blocks and has {frame.snapshot.pool.total} {where}."
    return None


POOL_FIXED = Claim(
    "pool-fixed",
    "The pool is fixed",
    "KV memory is allocated once. Its address and its size never change; only the owners of its blocks do.",
    (MIXED,),
    judge,
    also=SCENARIOS,
)
