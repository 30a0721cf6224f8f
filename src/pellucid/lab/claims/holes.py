"""Claim: scattered holes are as good as one long run of free blocks."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from pellucid.lab.claim import Claim, Recordings
from pellucid.lab.claims.same_output import different_output
from pellucid.lab.proof import Exhibit, Finding, Verdict, not_observable, refuted
from pellucid.lab.recording import Frame, Recording
from pellucid.lab.scenario import ALONE, ARRIVES, HOLES, LEAVES
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
            f"{ARRIVES} took {len(story.table)} blocks and {len(longest)} lay side by side: they were enough.",
            exhibits=_exhibits(story),
        )
    if not set(story.table) & set(story.hole):
        return not_observable(f"{ARRIVES} needed none of the hole's blocks.", exhibits=_exhibits(story))
    if other := different_output(run, alone, (ARRIVES,), "alone in the pool"):
        return other
    return _proved(run, story, longest)


def _story(run: Recording) -> Story | Finding:
    frames = run.frames
    held = [index for index, frame in enumerate(frames) if frame.blocks(LEAVES)]
    if not held:
        return not_observable(f"{LEAVES} never held a block.")
    hole = frames[held[-1]].blocks(LEAVES)
    opened = next((i for i in range(held[-1], len(frames)) if set(hole) & set(_free(frames[i]))), None)
    if opened is None:
        return not_observable(f"The blocks of {LEAVES} never came back, so there was no hole.")
    arrived = next((i for i, frame in enumerate(frames) if ARRIVES in frame.added), None)
    if arrived is None or arrived <= opened:
        return not_observable("No request arrived after the hole had opened.")
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
            f"{ARRIVES} needs {needed} free blocks and was not served in {len(waited)} steps, although there were "
            f"{fewest}.",
            exhibits=(Exhibit(f"After step {waited[-1].step}", waited[-1].snapshot),),
        )
    return not_observable(f"{ARRIVES} needs {needed} free blocks, there were {fewest}, and it was not served.")


def _unsound(run: Recording, story: Story) -> str | None:
    """What must hold of the new table: its own blocks, as many as it needs, all free before; nobody else moved."""
    table, served = story.table, story.served
    needed = run.blocks_for(len(run.requests[ARRIVES].prompt))
    if len(set(table)) != needed:
        return f"{ARRIVES} needs {needed} blocks for its prompt and has {len(set(table))} different ones."
    returned = _returned(run, story)
    if strangers := sorted(set(table) - set(story.free) - returned):
        return f"{ARRIVES} got blocks {runs(strangers)}, which were not free before."
    for request in served.running():
        if request.name == ARRIVES:
            continue
        if common := sorted(set(request.blocks) & set(table)):
            return f"{ARRIVES} and {request.name} both hold blocks {runs(common)}."
        before = story.before.blocks(request.name)
        if request.blocks[: len(before)] != before:
            return f"{request.name} was moved: its table was {runs(before)} and is {runs(request.blocks)}."
    return None


def _returned(run: Recording, story: Story) -> set[int]:
    """Blocks that became free while the late request was being served."""
    frames = run.frames[run.frames.index(story.before) : run.frames.index(story.served)]
    return {block for frame in frames for block in _free(frame)}


def _proved(run: Recording, story: Story, longest: tuple[int, ...]) -> Finding:
    hole, table = set(story.hole), story.table
    evidence: dict[str, Any] = {
        "hole": list(story.hole),
        "taken_meanwhile": sorted(hole - set(story.free)),
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
        f"{ARRIVES} took {len(table)} blocks where at most {len(longest)} lay side by side.",
        f"{run.steps} steps, {run.usable:,} usable blocks, {len(run.requests)} requests",
        _facts(evidence),
        evidence,
        _exhibits(story),
    )


def _facts(evidence: dict[str, Any]) -> tuple[tuple[str, str], ...]:
    return (
        (f"{LEAVES} ended", _count(evidence["hole"], "the hole")),
        ("taken meanwhile", _count(evidence["taken_meanwhile"], "by the survivors")),
        (f"free before {ARRIVES}", _count(evidence["free"])),
        ("longest run", _count(evidence["longest_run"], "measured, not assumed")),
        (f"{ARRIVES} took", _count(evidence["table"])),
        ("  from the hole", _count(evidence["reused"])),
        ("  from elsewhere", _count(evidence["fresh"])),
        ("  in this order", f"    by the policy {evidence['reuse_policy']}, which is no part of the claim"),
        ("nobody moved", f"{len(evidence['survivors']):>3} requests kept the blocks they had"),
        ("its output", f"{len(evidence['output']):>3} tokens, the same as alone in the pool"),
    )


def _count(blocks: Iterable[int], comment: str = "") -> str:
    ids = list(blocks)
    text = f"{len(ids):>3} blocks: {runs(ids)}"
    return f"{text}  ({comment})" if comment else text


def _exhibits(story: Story) -> tuple[Exhibit, ...]:
    return (
        Exhibit(f"Step {story.side_by_side.step}: side by side", story.side_by_side.snapshot),
        Exhibit(f"Step {story.opened.step}: {LEAVES} has ended and left a hole", story.opened.snapshot),
        Exhibit(f"Step {story.served.step}: {ARRIVES} is served", story.served.snapshot),
    )


HOLES_REUSED = Claim(
    "holes",
    "Holes are re-used",
    "A request larger than any contiguous run of free blocks is served from scattered ones, and nobody is moved.",
    (HOLES, ALONE),
    judge,
)
