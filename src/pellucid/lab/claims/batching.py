"""Claim: who else is in the batch changes nothing."""

from __future__ import annotations

from typing import Any

from pellucid.lab.claim import Claim, Recordings
from pellucid.lab.claims.same_output import different_output
from pellucid.lab.plans import launches, not_in_full
from pellucid.lab.proof import Exhibit, Finding, Table, Verdict, not_observable, refuted
from pellucid.lab.recording import Recording
from pellucid.lab.scenarios.schedules import IN_STEP, ONE_BY_ONE
from pellucid.lang import say


def judge(recordings: Recordings) -> Finding:
    """The batches are read from the plans, and the answers beside those of each request alone."""
    run, alone = recordings[IN_STEP.name], recordings[ONE_BY_ONE.name]
    if run.acts is None or alone.acts is None:
        return not_observable(say("This engine keeps no journal, so its plans cannot be seen."))
    batches, singles = batches_of(run), batches_of(alone)
    if max(map(len, batches), default=0) < 2:
        return not_observable(say("No plan had two requests, so there was no batch."))
    if max(map(len, singles), default=0) != 1:
        return not_observable(say("No request was alone in its plans, so there is nothing to compare with."))
    if other := different_output(run, alone, run.requests, say("alone")):
        return other
    for name in run.requests:
        if wrong := not_in_full(run, name):
            return refuted(wrong)
    return _proved(run, alone, batches, singles)


def batches_of(run: Recording) -> list[tuple[str, ...]]:
    """Who is in each plan."""
    return [launch.requests for launch, _ in launches(run.acts or ())]


def _proved(
    run: Recording, alone: Recording, batches: list[tuple[str, ...]], singles: list[tuple[str, ...]]
) -> Finding:
    largest = max(batches, key=len)
    shared = [batch for batch in batches if len(batch) > 1]
    evidence: dict[str, Any] = {
        "plans": len(batches),
        "plans_alone": len(singles),
        "batched_plans": len(shared),
        "largest_batch": list(largest),
        "requests": [
            {
                "name": name,
                "plans": sum(name in batch for batch in batches),
                "in_company": sum(name in batch for batch in shared),
                "output": list(run.outputs[name].tokens),
            }
            for name in run.requests
        ],
    }
    peak = max(run.frames, key=lambda frame: len(frame.running()))
    return Finding(
        Verdict.PROVED,
        say(
            "Of {plans:,} plans {n:,} had several requests, and every answer is the one alone.",
            n=len(shared),
            plans=len(batches),
        ),
        say(
            "{steps:,} steps together and {alone:,} one by one, {requests} requests",
            steps=run.steps,
            alone=alone.steps,
            requests=len(run.requests),
        ),
        (
            (say("together"), say("{n:,} plans, up to {most} requests in one", n=len(batches), most=len(largest))),
            (say("one by one"), say("{n:,} plans, one request in each", n=len(singles))),
        ),
        evidence,
        (Exhibit(say("Step {step}: side by side", step=peak.step), peak.snapshot),),
        (_table(evidence),),
    )


def _table(evidence: dict[str, Any]) -> Table:
    rows = [
        (row["name"], f"{row['plans']:,}", f"{row['in_company']:,}", f"{len(row['output']):,}")
        for row in evidence["requests"]
    ]
    return Table((say("request"), say("plans"), say("with others"), say("output tokens, the same")), tuple(rows))


BATCHING = Claim(
    "batching",
    say("Company changes nothing"),
    say("A request gives the same tokens alone and in a batch with others."),
    (IN_STEP, ONE_BY_ONE),
    judge,
)
