"""Claim: the books balance. Every invariant that can be seen is checked in every frame."""

from __future__ import annotations

from collections.abc import Iterator

from pellucid.kv.invariants import INVARIANTS, SNAPSHOT_CHECKS, Violation
from pellucid.kv.trail import Trail
from pellucid.lab.claim import Claim, Recordings
from pellucid.lab.proof import Exhibit, Finding, Verdict, not_observable, refuted
from pellucid.lab.recording import Frame, Recording
from pellucid.lab.scenarios import MIXED, SCENARIOS
from pellucid.lang import say

IN_A_SNAPSHOT = ("I1", "I2", "I3", "I9")
IN_THE_JOURNAL = ("I4", "I5", "I7", "I8")
OF_FENCES = "I10"
"""Where the engine fences; else its device keeps the order of writes."""
BY_FOLDING = "I12"
"""Which the claim about the journal checks."""

INSIDE = ("I6", "I14")
OF_MEMORY = "I11"
"""Where it can be seen where the pool is."""


def _unseen(invariants: list[str]) -> str:
    """I13 compares two runs, so no single one can check it."""
    if invariants == ["I13"]:
        return say("I13 (it compares two runs)")
    return " ".join(invariants) or say("nothing")


def judge(recordings: Recordings) -> Finding:
    """From the recording alone, pictures and journal, and what an audit from inside found."""
    for recording in recordings.values():
        for frame, message in _violations(recording):
            where = say("After step {step} of the scenario {scenario!r}", step=frame.step, scenario=recording.scenario)
            reason = say("{where}: {violation}", where=where, violation=message)
            return refuted(reason, exhibits=(Exhibit(where, frame.snapshot),))
    if not any(frame.snapshot.requests for recording in recordings.values() for frame in recording.frames):
        return not_observable(say("No request ever lived, so the books were empty."))
    return _proved(recordings)


def _violations(recording: Recording) -> Iterator[tuple[Frame, str]]:
    acts, first = recording.acts, recording.frames[0].snapshot
    trail, read = Trail(first, fences=recording.about.fences), 0
    for frame in recording.frames:
        for message in frame.violations or ():
            yield frame, message
        for check in SNAPSHOT_CHECKS:
            yield from ((frame, str(violation)) for violation in check(frame.snapshot))
        if acts is None:
            continue
        until = frame.snapshot.acts - first.acts
        for act in acts[read:until]:
            yield from ((frame, str(Violation(*fault))) for fault in trail.follow(act))
        read = until


def _proved(recordings: Recordings) -> Finding:
    runs = list(recordings.values())
    journal = all(recording.acts is not None for recording in runs)
    inside = all(frame.violations is not None for recording in runs for frame in recording.frames)
    seen = inside and all(frame.memory is not None for recording in runs for frame in recording.frames)
    checked = [*IN_A_SNAPSHOT, *(IN_THE_JOURNAL if journal else ()), *(INSIDE if inside else ())]
    checked += [OF_MEMORY] if seen else []
    checked += [OF_FENCES] if journal and all(recording.about.fences for recording in runs) else []
    checked.sort(key=list(INVARIANTS).index)
    frames = sum(len(recording.frames) for recording in runs)
    acts = sum(len(recording.acts or ()) for recording in runs)
    steps = sum(recording.steps for recording in runs)
    left = sum(recording.frames[-1].snapshot.pool.held for recording in runs)
    unseen = [invariant for invariant in INVARIANTS if invariant not in (*checked, BY_FOLDING)]
    facts = (
        (say("checked"), " ".join(checked)),
        ("", say("each of them after every step")),
        (say("not checked here"), _unseen(unseen)),
        (
            say("the journal"),
            say("{n:,} acts, followed one by one", n=acts) if journal else say("this engine has none"),
        ),
        (say("at the end"), say("{n} held", n=left) if left else say("0 blocks held: every block came back")),
    )
    return Finding(
        Verdict.PROVED,
        say("No invariant was broken."),
        say("{steps} steps of {scenarios} scenarios", steps=steps, scenarios=len(runs)),
        facts,
        {
            "invariants": {name: INVARIANTS[name] for name in checked},
            "not_checked": unseen,
            "snapshots": frames,
            "acts": acts if journal else None,
            "held_at_the_end": left,
        },
    )


ACCOUNTING = Claim(
    "accounting",
    say("The books balance"),
    say("Every block is in one state, its owners are its table entries, and nobody writes where others read."),
    (MIXED,),
    judge,
    also=SCENARIOS,
)
