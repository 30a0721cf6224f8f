"""Claim: whatever can be seen is a fold over the journal, and a journal that lies is found out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from msgspec.structs import replace

from pellucid.errors import JournalError
from pellucid.kv.acts import Admit, AnyAct, Close, Commit, Launch, Lookup, Move, Open, Preempt, Publish, told
from pellucid.kv.fold import Fold
from pellucid.kv.trail import Trail
from pellucid.lab.claim import Claim, Recordings
from pellucid.lab.proof import Exhibit, Finding, Table, Verdict, not_observable, refuted
from pellucid.lab.recording import Frame, Recording
from pellucid.lab.scenarios import MIXED, SCENARIOS
from pellucid.lang import say

PROBES = 3
"""So many acts of each kind are left out and altered, one at a time."""


class Probe(NamedTuple):
    """Act ``number`` of ``run`` (from 0), and whether its loss and its alteration are noticed."""

    run: Recording
    number: int
    act: AnyAct
    lost: bool
    altered: bool


def judge(recordings: Recordings) -> Finding:
    """Every recorded snapshot is folded again; then acts are left out and altered, to see that it is noticed."""
    runs = [run for run in recordings.values() if run.acts is not None]
    if not runs:
        return not_observable(say("This engine keeps no journal."))
    if not any(run.acts for run in runs):
        return not_observable(say("Nothing happened, so the journal is empty."))
    for run in runs:
        if finding := _mismatch(run):
            return finding
    probes = list(_probes(runs))
    for probe in probes:
        if not (probe.lost and probe.altered):
            return refuted(say("Nothing would tell if this act were lost or altered: {act}.", act=told(probe.act)))
    return _proved(runs, probes)


def _mismatch(run: Recording) -> Finding | None:
    told_of, counted = len(run.acts or ()), run.frames[-1].snapshot.acts - run.frames[0].snapshot.acts
    if told_of != counted:
        return refuted(
            say(
                "The journal of the scenario {name!r} has {n} acts, and {counted} are counted.",
                name=run.scenario,
                n=told_of,
                counted=counted,
            )
        )
    for frame, wrong in _unequal(run, run.acts or ()):
        where = say("After step {step} of the scenario {name!r}", step=frame.step, name=run.scenario)
        return refuted(say("{where} {wrong}", where=where, wrong=wrong), exhibits=(Exhibit(where, frame.snapshot),))
    return None


def _unequal(run: Recording, acts: Sequence[AnyAct | None], since: int = 0) -> Iterator[tuple[Frame, str]]:
    """Frames that ``acts`` do not fold to; those before act ``since`` are not compared. None is an act left out."""
    first = run.frames[0].snapshot
    fold, read = Fold(first), 0
    for frame in run.frames:
        until = frame.snapshot.acts - first.acts
        try:
            for act in acts[read:until]:
                if act is None:
                    fold.acts += 1  # nobody is to be given away by a count
                else:
                    fold.apply(act)
        except JournalError as error:
            yield frame, say("the journal cannot be folded: {error}", error=str(error))
            return
        read = until
        if until >= since and fold.snapshot() != frame.snapshot:
            yield frame, say("the journal folds to another snapshot than the recorded one.")


def _probes(runs: list[Recording]) -> Iterator[Probe]:
    probed: Counter[type] = Counter()
    for run in runs:
        for number, act in enumerate(run.acts or ()):
            if probed[type(act)] < PROBES:
                probed[type(act)] += 1
                yield Probe(run, number, act, _noticed(run, number, None), _noticed(run, number, _altered(act)))


def _altered(act: AnyAct) -> AnyAct:
    """``act`` with something else in it: one token more, one block or owner less, another step, or another name."""
    match act:
        case Lookup():
            return replace(act, asked=act.asked + 1)
        case Admit():
            return replace(act, computed=act.computed + 1)
        case Launch():
            return replace(act, counts=(act.counts[0] + 1, *act.counts[1:]))
        case Commit():
            return replace(act, launched=act.launched + 1)
        case Open() | Preempt() | Close():
            return replace(act, request=act.request + "?")
        case Publish():
            return replace(act, blocks=act.blocks[:-1], identities=act.identities[:-1])
        case Move():
            return replace(act, requests=act.requests[:-1])
        case _:
            return replace(act, blocks=act.blocks[:-1])


def _noticed(run: Recording, number: int, instead: AnyAct | None) -> bool:
    """Whether the fold, or the trail of who writes where, finds fault when act ``number`` is another, or left out."""
    acts: list[AnyAct | None] = list(run.acts or ())
    acts[number] = instead
    if any(True for _ in _unequal(run, acts, number)):
        return True
    trail = Trail(run.frames[0].snapshot, fences=run.about.fences)
    return any(True for act in acts if act is not None for _ in trail.follow(act))


def _proved(runs: list[Recording], probes: list[Probe]) -> Finding:
    kinds = Counter(type(act).__name__.lower() for run in runs for act in run.acts or ())
    acts, frames = kinds.total(), sum(len(run.frames) for run in runs)
    evidence: dict[str, Any] = {
        "acts": acts,
        "snapshots": frames,
        "kinds": dict(kinds.most_common()),
        "probed": [
            {
                "scenario": probe.run.scenario,
                "act": probe.run.frames[0].snapshot.acts + probe.number + 1,
                "kind": type(probe.act).__name__.lower(),
            }
            for probe in probes
        ],
    }
    facts = (
        (say("the journal"), say("{acts:,} acts of {kinds} kinds", acts=acts, kinds=len(kinds))),
        (say("folded"), say("by other code than the engine's, to each of {n:,} snapshots", n=frames)),
        (say("left out"), say("{n} acts, one at a time: every loss was noticed", n=len(probes))),
        (say("altered"), say("{n} acts, one at a time: every change was noticed", n=len(probes))),
    )
    return Finding(
        Verdict.PROVED,
        say("{acts:,} acts fold to each of {n:,} snapshots, and none can be lost in silence.", acts=acts, n=frames),
        say(
            "{steps:,} steps of {n} scenarios; at most {probes} acts of a kind were left out and altered",
            steps=sum(run.steps for run in runs),
            n=len(runs),
            probes=PROBES,
        ),
        facts,
        evidence,
        tables=(_table(kinds, probes),),
    )


def _table(kinds: Counter[str], probes: list[Probe]) -> Table:
    probed = Counter(type(probe.act).__name__.lower() for probe in probes)
    rows = [(kind, f"{count:,}", f"{probed[kind]}", f"{probed[kind]}") for kind, count in kinds.most_common()]
    return Table((say("act"), say("acts"), say("losses noticed"), say("changes noticed")), tuple(rows))


JOURNAL = Claim(
    "journal",
    say("The journal tells everything"),
    say("Every snapshot is a fold over the journal, and an act that is lost or altered does not go unnoticed."),
    (MIXED,),
    judge,
    also=SCENARIOS,
)
