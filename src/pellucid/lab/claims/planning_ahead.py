"""Claim: asynchronous scheduling, planning a step before the last one's result is in, changes nothing."""

from __future__ import annotations

from typing import Any, NamedTuple

from pellucid.kv.acts import Return, Take
from pellucid.kv.trail import Trail
from pellucid.lab.claim import Claim, Recordings
from pellucid.lab.claims.same_output import different_output
from pellucid.lab.plans import launches, not_in_full
from pellucid.lab.proof import Exhibit, Finding, Table, Verdict, not_observable, refuted
from pellucid.lab.recording import Recording
from pellucid.lab.scenarios.leaving import LEAVING, LEAVING_IN_STEP
from pellucid.lab.scenarios.schedules import AHEAD, IN_STEP
from pellucid.lang import say
from pellucid.view import runs


class Pace(NamedTuple):
    """``plans`` were launched, ``early`` of them while another was under way, in ``steps`` of the engine."""

    steps: int
    plans: int
    early: int


class Fenced(NamedTuple):
    """``name`` gave up ``blocks`` to which step ``fence`` could still write; ``again`` are those that were taken later.

    Steps are counted from the beginning of the recording.
    """

    name: str
    fence: int
    blocks: tuple[int, ...]
    again: tuple[int, ...]


def judge(recordings: Recordings) -> Finding:
    """Which plans were early is read from the order of launches and commits, and so is who waited for whom."""
    run, in_step = recordings[AHEAD.name], recordings[IN_STEP.name]
    if run.acts is None or in_step.acts is None:
        return not_observable(say("This engine keeps no journal, so its plans cannot be seen."))
    ahead, behind = _pace(run), _pace(in_step)
    if not ahead.early:
        return not_observable(say("No plan was launched while another was under way."))
    if behind.early:
        return not_observable(
            say("{n:,} plans were early although asynchronous scheduling was off: nothing to compare.", n=behind.early)
        )
    if other := different_output(run, in_step, run.requests, say("step by step")):
        return other
    for name in run.requests:
        if wrong := not_in_full(run, name):
            return refuted(wrong)
    left = _left(recordings[LEAVING.name], recordings[LEAVING_IN_STEP.name])
    return left if isinstance(left, Finding) else _proved(run, ahead, behind, left)


def _left(run: Recording, in_step: Recording) -> list[Fenced] | Finding:
    """What was still being written when its request left, and came back into use only when that was over."""
    if run.acts is None:
        return not_observable(say("This engine keeps no journal, so its plans cannot be seen."))
    trail = Trail(run.frames[0].snapshot)
    for act in run.acts:
        if early := next((fault for fault in trail.follow(act) if fault.invariant == "I10"), None):
            return refuted(say("Of requests that left while a step was under way: {fault}", fault=early.message))
    aborted = {name for frame in run.frames for name in frame.aborted}
    stayed = [name for name in run.requests if name not in aborted]
    if other := different_output(run, in_step, stayed, say("between two steps")):
        return other
    fenced = _fenced(run)
    if not any(each.again for each in fenced if each.name in aborted):
        return not_observable(say("Nobody left blocks behind that a step under way could write to, and others took."))
    return fenced


def _fenced(run: Recording) -> list[Fenced]:
    found: list[Fenced] = []
    acts, first = run.acts or (), run.frames[0].snapshot.step
    for number, act in enumerate(acts):
        if isinstance(act, Return) and act.fenced:
            later = {block for other in acts[number:] if isinstance(other, Take) for block in other.blocks}
            again = tuple(block for block in act.fenced if block in later)
            found.append(Fenced(act.request, act.fence - first, act.fenced, again))
    return found


def _pace(run: Recording) -> Pace:
    under_way = [number for _, number in launches(run.acts or ())]
    return Pace(run.steps, len(under_way), sum(map(bool, under_way)))


def _proved(run: Recording, ahead: Pace, behind: Pace, fenced: list[Fenced]) -> Finding:
    outputs = {name: len(run.outputs[name].tokens) for name in run.requests}
    evidence: dict[str, Any] = {"ahead": ahead._asdict(), "in_step": behind._asdict(), "output_tokens": outputs}
    evidence["fenced"] = [{**each._asdict(), "blocks": list(each.blocks), "again": list(each.again)} for each in fenced]
    flying = next((frame for frame in run.frames if frame.snapshot.launched), None)
    rows = [
        (label, f"{pace.steps:,}", f"{pace.plans:,}", f"{pace.early:,}")
        for label, pace in ((say("on"), ahead), (say("off"), behind))
    ]
    return Finding(
        Verdict.PROVED,
        say(
            "Of {plans:,} plans {early:,} left before the last result was in, and every answer is the same.",
            early=ahead.early,
            plans=ahead.plans,
        ),
        say("{on:,} steps with it and {off:,} without, {n} requests", on=ahead.steps, off=behind.steps, n=len(outputs)),
        (
            (say("the answers"), say("{n:,} output tokens, the same with it and without", n=sum(outputs.values()))),
            (
                say("left meanwhile"),
                say("{n} x, by an abort or a pre-emption, while a step was under way", n=len(fenced)),
            ),
        ),
        evidence,
        (Exhibit(say("Step {step}: a plan is under way", step=flying.step), flying.snapshot),) if flying else (),
        (Table((say("asynchronous"), say("steps"), say("plans"), say("early plans")), tuple(rows)), _fences(fenced)),
    )


def _fences(fenced: list[Fenced]) -> Table:
    header = (say("who left"), say("blocks that were being written"), say("by step"), say("used again afterwards"))
    rows = [(each.name, runs(each.blocks), f"{each.fence:,}", runs(each.again)) for each in fenced]
    return Table(header, tuple(rows))


PLANNING_AHEAD = Claim(
    "planning-ahead",
    say("Planning ahead changes nothing"),
    say(
        "With asynchronous scheduling the next plan leaves before the last result is in; the tokens are the same, "
        "and no block is used again while a step under way may write to it."
    ),
    (AHEAD, IN_STEP, LEAVING, LEAVING_IN_STEP),
    judge,
)
