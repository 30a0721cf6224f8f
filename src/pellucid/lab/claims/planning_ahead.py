"""Claim: asynchronous scheduling, planning a step before the last one's result is in, changes nothing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from pellucid.kv.acts import AnyAct, Commit, Return, Take
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


class Left(NamedTuple):
    """``name`` gave up ``blocks`` to which step ``writer`` could still write; ``again`` are those taken later.

    Steps are counted from the beginning of the recording. ``early`` of ``again`` were taken while it still could.
    """

    name: str
    writer: int
    blocks: tuple[int, ...]
    again: tuple[int, ...]
    early: tuple[int, ...]


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


def _left(run: Recording, in_step: Recording) -> list[Left] | Finding:
    """What was still being written when its request left, and what became of it.

    An engine that fences takes it into use only when that is over; another relies on its device to keep the order of
    the writes, and then only the answers can tell.
    """
    if run.acts is None:
        return not_observable(say("This engine keeps no journal, so its plans cannot be seen."))
    trail = Trail(run.frames[0].snapshot, fences=run.about.fences)
    for act in run.acts:
        if early := next((fault for fault in trail.follow(act) if fault.invariant == "I10"), None):
            return refuted(say("Of requests that left while a step was under way: {fault}", fault=early.message))
    aborted = {name for frame in run.frames for name in frame.aborted}
    stayed = [name for name in run.requests if name not in aborted]
    if other := different_output(run, in_step, stayed, say("between two steps")):
        return other
    left = _in_mid_step(run)
    if not any(each.again for each in left if each.name in aborted):
        return not_observable(say("Nobody left blocks behind that a step under way could write to, and others took."))
    return left


def _in_mid_step(run: Recording) -> list[Left]:
    """Read from the trail of writes, which knows what launched steps may write to, whether that is fenced or not."""
    acts, first = run.acts or (), run.frames[0].snapshot
    trail = Trail(first, fences=False)
    found: list[Left] = []
    for number, act in enumerate(acts):
        if isinstance(act, Return):
            writers = {block: trail.written_by(block) for block in act.blocks}
            blocks = tuple(block for block, writer in writers.items() if writer)
            if blocks:
                found.append(_what_became(act.request, blocks, max(writers.values()), acts[number:], first.step))
        for _ in trail.follow(act):
            pass  # what is wrong was looked for before
    return found


def _what_became(name: str, blocks: tuple[int, ...], writer: int, acts: Sequence[AnyAct], first: int) -> Left:
    """What happened to ``blocks`` in ``acts``, which begin with their return, until ``writer`` was over and after."""
    again: dict[int, bool] = {}
    over = False
    for act in acts:
        over = over or (isinstance(act, Commit) and act.launched == writer)
        for block in act.blocks if isinstance(act, Take) else ():
            if block in blocks:
                again.setdefault(block, not over)
    taken = tuple(block for block in blocks if block in again)
    return Left(name, writer - first, blocks, taken, tuple(block for block in taken if again[block]))


def _pace(run: Recording) -> Pace:
    under_way = [number for _, number in launches(run.acts or ())]
    return Pace(run.steps, len(under_way), sum(map(bool, under_way)))


def _proved(run: Recording, ahead: Pace, behind: Pace, left: list[Left]) -> Finding:
    outputs = {name: len(run.outputs[name].tokens) for name in run.requests}
    evidence: dict[str, Any] = {"ahead": ahead._asdict(), "in_step": behind._asdict(), "output_tokens": outputs}
    evidence["fences"] = run.about.fences
    evidence["left_meanwhile"] = [
        {**each._asdict(), "blocks": list(each.blocks), "again": list(each.again), "early": list(each.early)}
        for each in left
    ]
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
                say("{n} x, by an abort or a pre-emption, while a step was under way", n=len(left)),
            ),
            *_order_of_writes(run, left),
        ),
        evidence,
        (Exhibit(say("Step {step}: a plan is under way", step=flying.step), flying.snapshot),) if flying else (),
        (Table((say("asynchronous"), say("steps"), say("plans"), say("early plans")), tuple(rows)), _leavers(left)),
    )


def _order_of_writes(run: Recording, left: list[Left]) -> list[tuple[str, str]]:
    """Whom an engine that does not fence relies on."""
    if run.about.fences:
        return []
    early = sum(len(each.early) for each in left)
    text = say("kept by the device's queue: {n} blocks were taken while a step could still write to them", n=early)
    return [(say("order of writes"), text)]


def _leavers(left: list[Left]) -> Table:
    header = (say("who left"), say("blocks that were being written"), say("by step"), say("used again afterwards"))
    rows = [(each.name, runs(each.blocks), f"{each.writer:,}", runs(each.again)) for each in left]
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
