"""Claim: scattered holes are as good as one long run of free blocks."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from pellucid.lab.claim import Claim, Recordings
from pellucid.lab.claims.same_output import different_output
from pellucid.lab.proof import Exhibit, Finding, Verdict, not_observable, refuted
from pellucid.lab.recording import Frame, Recording
from pellucid.lab.scenarios.holes import ALONE, ARRIVES, HOLES, LEAVES
from pellucid.lang import say
from pellucid.view import runs


class Story(NamedTuple):
    """The moments that matter: side by side, the hole open, just before the late request, and it served.

    ``hole`` are the blocks that the leaving request returned, ``free`` the reclaimable blocks just
    before the late request got its ``table``.
    """

    side_by_side: Frame
    opened: Frame
    before: Frame
    served: Frame
    hole: tuple[int, ...]
    free: tuple[int, ...]
    table: tuple[int, ...]


def longest_run(blocks: Iterable[int]) -> tuple[int, ...]:
    """The longest run of consecutive ids in a set of blocks, the lowest of equals."""
    best: list[int] = []
    run: list[int] = []
    for block in sorted(blocks):
        run = [*run, block] if run and block == run[-1] + 1 else [block]
        best = max(best, run, key=len)
    return tuple(best)


def judge(recordings: Recordings) -> Finding:
    """Measured on the real free set just before the late request gets its blocks."""
    run, alone = recordings[HOLES.name], recordings[ALONE.name]
    story = _story(run)
    if isinstance(story, Finding):
        return story
    if wrong := _unsound(run, story):
        return refuted(wrong, exhibits=_exhibits(story))
    longest = longest_run(story.free)
    if len(story.table) <= len(longest):
        return not_observable(
            say(
                "{name} took {taken} blocks and {longest} lay side by side: they were enough.",
                name=ARRIVES,
                taken=len(story.table),
                longest=len(longest),
            ),
            exhibits=_exhibits(story),
        )
    if not set(story.table) & set(story.hole):
        return not_observable(say("{name} needed none of the hole's blocks.", name=ARRIVES), exhibits=_exhibits(story))
    if other := different_output(run, alone, (ARRIVES,), say("alone in the pool")):
        return other
    return _proved(run, story, longest)


def _story(run: Recording) -> Story | Finding:
    frames = run.frames
    held = [index for index, frame in enumerate(frames) if frame.blocks(LEAVES)]
    if not held:
        return not_observable(say("{name} never held a block.", name=LEAVES))
    hole = frames[held[-1]].blocks(LEAVES)
    opened = next((i for i in range(held[-1], len(frames)) if set(hole) & set(_free(frames[i]))), None)
    if opened is None:
        return not_observable(say("The blocks of {name} never came back, so there was no hole.", name=LEAVES))
    arrived = next((i for i, frame in enumerate(frames) if ARRIVES in frame.added), None)
    if arrived is None or arrived <= opened:
        return not_observable(say("No request arrived after the hole had opened."))
    admitted, served = run.admitted(ARRIVES), run.served(ARRIVES)
    if admitted is None or served is None:
        return _never_served(run, arrived)
    before = frames[admitted - 1]
    table = frames[served].blocks(ARRIVES)
    return Story(frames[held[0]], frames[opened], before, frames[served], hole, _free(before), table)


def _free(frame: Frame) -> tuple[int, ...]:
    return tuple(sorted(frame.snapshot.pool.reuse_order))


def _never_served(run: Recording, arrived: int) -> Finding:
    """Refuted if it waited although there was room all the time."""
    needed = run.blocks_for(len(run.requests[ARRIVES].prompt)) + run.about.spare_blocks
    waited = [frame for frame in run.frames[arrived:] if frame.live(ARRIVES)]
    fewest = min((len(_free(frame)) for frame in waited), default=0)
    if waited and fewest >= needed:
        return refuted(
            say(
                "{name} needs {needed} free blocks and was not served in {steps} steps, although there were {fewest}.",
                name=ARRIVES,
                needed=needed,
                steps=len(waited),
                fewest=fewest,
            ),
            exhibits=(Exhibit(say("After step {step}", step=waited[-1].step), waited[-1].snapshot),),
        )
    return not_observable(
        say(
            "{name} needs {needed} free blocks, there were {fewest}, and it was not served.",
            name=ARRIVES,
            needed=needed,
            fewest=fewest,
        )
    )


def _unsound(run: Recording, story: Story) -> str | None:
    """What must hold of the new table: its own blocks, as many as it needs, all free before; nobody else moved."""
    table, served = story.table, story.served
    needed = run.blocks_for(len(run.requests[ARRIVES].prompt))
    if len(set(table)) != needed:
        return say(
            "{name} needs {needed} blocks for its prompt and has {has} different ones.",
            name=ARRIVES,
            needed=needed,
            has=len(set(table)),
        )
    fences = story.before.snapshot.pool.fences
    elsewhere = {*story.free, *_taken_meanwhile(story)}
    if lost := [block for block in story.hole if block not in elsewhere and not fences[block]]:
        return say("Blocks {blocks} of the hole are neither free nor held by anybody.", blocks=runs(lost))
    returned = _returned(run, story)
    if strangers := sorted(set(table) - set(story.free) - returned):
        return say("{name} got blocks {blocks}, which were not free before.", name=ARRIVES, blocks=runs(strangers))
    for request in served.running():
        if request.name == ARRIVES:
            continue
        if common := sorted(set(request.blocks) & set(table)):
            return say(
                "{one} and {other} both hold blocks {blocks}.", one=ARRIVES, other=request.name, blocks=runs(common)
            )
        before = story.before.blocks(request.name)
        if request.blocks[: len(before)] != before:
            return say(
                "{name} was moved: its table was {before} and is {now}.",
                name=request.name,
                before=runs(before),
                now=runs(request.blocks),
            )
    return None


def _taken_meanwhile(story: Story) -> dict[int, str]:
    """Blocks of the hole that somebody else held when the late request came, and who."""
    live = story.before.snapshot.requests
    return {block: request.name for request in live for block in request.blocks if block in story.hole}


def _returned(run: Recording, story: Story) -> set[int]:
    """Blocks that became free while the late request was being served."""
    frames = run.frames[run.frames.index(story.before) : run.frames.index(story.served)]
    return {block for frame in frames for block in _free(frame)}


def _proved(run: Recording, story: Story, longest: tuple[int, ...]) -> Finding:
    hole, table, meanwhile = set(story.hole), story.table, _taken_meanwhile(story)
    evidence: dict[str, Any] = {
        "hole": list(story.hole),
        "taken_meanwhile": sorted(meanwhile),
        "taken_by": sorted(set(meanwhile.values())),
        "free": list(story.free),
        "longest_run": list(longest),
        "table": list(table),
        "reused": [block for block in table if block in hole],
        "fresh": [block for block in table if block not in hole],
        "reuse_policy": story.before.snapshot.pool.reuse_policy,
        "survivors": [request.name for request in story.before.running()],
        "output": list(run.outputs[ARRIVES].tokens),
        "steps": {
            "side_by_side": story.side_by_side.step,
            "opened": story.opened.step,
            "before": story.before.step,
            "served": story.served.step,
        },
    }
    return Finding(
        Verdict.PROVED,
        say(
            "{name} took {taken} blocks where at most {longest} lay side by side.",
            name=ARRIVES,
            taken=len(table),
            longest=len(longest),
        ),
        say(
            "{steps} steps, {usable:,} usable blocks, {requests} requests",
            steps=run.steps,
            usable=run.usable,
            requests=len(run.requests),
        ),
        _facts(evidence),
        evidence,
        _exhibits(story),
    )


def _facts(evidence: dict[str, Any]) -> tuple[tuple[str, str], ...]:
    return (
        (say("{name} ended", name=LEAVES), _count(evidence["hole"], say("the hole"))),
        (say("taken meanwhile"), _count(evidence["taken_meanwhile"], say("by the survivors"))),
        (say("free before {name}", name=ARRIVES), _count(evidence["free"])),
        (say("longest run"), _count(evidence["longest_run"], say("measured, not assumed"))),
        (say("{name} took", name=ARRIVES), _count(evidence["table"])),
        (say("  from the hole"), _count(evidence["reused"])),
        (say("  from elsewhere"), _count(evidence["fresh"])),
        (
            say("  in this order"),
            say("    by the policy {policy}, which is no part of the claim", policy=evidence["reuse_policy"]),
        ),
        (say("nobody moved"), say("{n:>3} requests kept the blocks they had", n=len(evidence["survivors"]))),
        (say("its output"), say("{n:>3} tokens, the same as alone in the pool", n=len(evidence["output"]))),
    )


def _count(blocks: Iterable[int], comment: str = "") -> str:
    ids = list(blocks)
    if comment:
        return say("{n:>3} blocks: {ids}  ({comment})", n=len(ids), ids=runs(ids), comment=comment)
    return say("{n:>3} blocks: {ids}", n=len(ids), ids=runs(ids))


def _exhibits(story: Story) -> tuple[Exhibit, ...]:
    return (
        Exhibit(say("Step {step}: side by side", step=story.side_by_side.step), story.side_by_side.snapshot),
        Exhibit(
            say("Step {step}: {name} has ended and left a hole", step=story.opened.step, name=LEAVES),
            story.opened.snapshot,
        ),
        Exhibit(say("Step {step}: {name} is served", step=story.served.step, name=ARRIVES), story.served.snapshot),
    )


HOLES_REUSED = Claim(
    "holes",
    say("Holes are re-used"),
    say("A request larger than any contiguous run of free blocks is served from scattered ones, and nobody is moved."),
    (HOLES, ALONE),
    judge,
)
