"""Claim: a prompt computed in chunks gives what it gives when it is computed at once."""

from __future__ import annotations

from typing import Any, NamedTuple

from pellucid.lab.claim import Claim, Recordings
from pellucid.lab.claims.same_output import different_output
from pellucid.lab.plans import launches, lives, not_in_full
from pellucid.lab.proof import Exhibit, Finding, Table, Verdict, not_observable, refuted
from pellucid.lab.recording import Frame, Recording
from pellucid.lab.scenarios.schedules import CHUNKED, ONE_BY_ONE
from pellucid.lang import say


class Division(NamedTuple):
    """How many tokens of the prompt of ``name`` each plan computed: under the small budget, and alone."""

    name: str
    chunks: tuple[int, ...]
    alone: tuple[int, ...]

    @property
    def divided(self) -> bool:
        return len(self.chunks) > 1 and self.chunks != self.alone


def judge(recordings: Recordings) -> Finding:
    """The chunks are read from the plans, and the answers beside those of each request alone."""
    run, alone = recordings[CHUNKED.name], recordings[ONE_BY_ONE.name]
    if run.acts is None or alone.acts is None:
        return not_observable(say("This engine keeps no journal, so its plans cannot be seen."))
    if wrong := _over_budget(run):
        return refuted(wrong)
    divisions = [Division(name, chunks(run, name), chunks(alone, name)) for name in run.requests]
    if not any(division.divided for division in divisions):
        return not_observable(
            say("No prompt was divided otherwise with {n:,} tokens a step.", n=run.about.max_num_batched_tokens)
        )
    if other := different_output(run, alone, run.requests, say("computed at once")):
        return other
    for name in run.requests:
        if wrong := not_in_full(run, name):
            return refuted(wrong)
    return _proved(run, divisions)


def chunks(run: Recording, name: str) -> tuple[int, ...]:
    """Tokens of the prompt of ``name`` in each plan of its last life."""
    prompt = len(run.requests[name].prompt)
    last = lives(run.acts or (), name)[-1:]
    parts = [min(chunk.tokens, prompt - chunk.start) for life in last for chunk in life.chunks]
    return tuple(part for part in parts if part > 0)


def _over_budget(run: Recording) -> str | None:
    budget = run.about.max_num_batched_tokens
    for launch, _ in launches(run.acts or ()):
        if sum(launch.counts) > budget:
            return say(
                "The plan of step {step} computes {n:,} tokens, and {budget:,} are allowed.",
                step=launch.step,
                n=sum(launch.counts),
                budget=budget,
            )
    return None


def _proved(run: Recording, divisions: list[Division]) -> Finding:
    divided = [division for division in divisions if division.divided]
    budget, most = run.about.max_num_batched_tokens, max(len(division.chunks) for division in divided)
    beside = _beside(run)
    evidence: dict[str, Any] = {
        "max_num_batched_tokens": budget,
        "requests": [
            {
                "name": division.name,
                "prompt": len(run.requests[division.name].prompt),
                "chunks": list(division.chunks),
                "alone": list(division.alone),
                "output_tokens": len(run.outputs[division.name].tokens),
            }
            for division in divisions
        ],
        "beside_decodes": len(beside),
    }
    facts = (
        (say("budget"), say("at most {n:,} tokens a step, and no plan had more", n=budget)),
        (say("beside them"), say("in {n:,} step(s) others had their prompts done and went on", n=len(beside))),
    )
    return Finding(
        Verdict.PROVED,
        say("{n} prompt(s) came in up to {most} chunks, and every answer is the same.", n=len(divided), most=most),
        say("{steps:,} steps, {requests} requests, in chunks and alone", steps=run.steps, requests=len(divisions)),
        facts,
        evidence,
        tuple(
            Exhibit(say("Step {step}: a prompt half computed", step=frame.step), frame.snapshot) for frame in beside[:1]
        ),
        (_table(run, divisions),),
    )


def _beside(run: Recording) -> list[Frame]:
    """Frames in which one prompt is half computed and another is done."""
    found = []
    for frame in run.frames:
        whole = [view.slots >= len(run.requests[view.name].prompt) for view in frame.running()]
        if any(whole) and not all(whole):
            found.append(frame)
    return found


def _table(run: Recording, divisions: list[Division]) -> Table:
    rows = [
        (
            division.name,
            f"{len(run.requests[division.name].prompt):,}",
            " ".join(map(str, division.chunks)),
            " ".join(map(str, division.alone)),
        )
        for division in divisions
    ]
    return Table((say("request"), say("prompt"), say("in chunks of"), say("alone")), tuple(rows))


CHUNKING = Claim(
    "chunking",
    say("Chunks change nothing"),
    say("A prompt whose tokens are computed in chunks, step by step beside others, gives the same tokens."),
    (CHUNKED, ONE_BY_ONE),
    judge,
)
