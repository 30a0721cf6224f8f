"""Claim: asynchronous scheduling, planning a step before the last one's result is in, changes nothing."""

from __future__ import annotations

from typing import Any, NamedTuple

from pellucid.lab.claim import Claim, Recordings
from pellucid.lab.claims.same_output import different_output
from pellucid.lab.plans import launches, not_in_full
from pellucid.lab.proof import Exhibit, Finding, Table, Verdict, not_observable, refuted
from pellucid.lab.recording import Recording
from pellucid.lab.scenarios.schedules import AHEAD, IN_STEP
from pellucid.lang import say


class Pace(NamedTuple):
    """``plans`` were launched, ``early`` of them while another was under way, in ``steps`` of the engine."""

    steps: int
    plans: int
    early: int


def judge(recordings: Recordings) -> Finding:
    """Which plans were early is read from the order of launches and commits."""
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
    return _proved(run, ahead, behind)


def _pace(run: Recording) -> Pace:
    under_way = [number for _, number in launches(run.acts or ())]
    return Pace(run.steps, len(under_way), sum(map(bool, under_way)))


def _proved(run: Recording, ahead: Pace, behind: Pace) -> Finding:
    outputs = {name: len(run.outputs[name].tokens) for name in run.requests}
    evidence: dict[str, Any] = {"ahead": ahead._asdict(), "in_step": behind._asdict(), "output_tokens": outputs}
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
        ((say("the answers"), say("{n:,} output tokens, the same with it and without", n=sum(outputs.values()))),),
        evidence,
        (Exhibit(say("Step {step}: a plan is under way", step=flying.step), flying.snapshot),) if flying else (),
        (Table((say("asynchronous"), say("steps"), say("plans"), say("early plans")), tuple(rows)),),
    )


PLANNING_AHEAD = Claim(
    "planning-ahead",
    say("Planning ahead changes nothing"),
    say("With asynchronous scheduling the next plan leaves before the last result is in, and the tokens are the same."),
    (AHEAD, IN_STEP),
    judge,
)
