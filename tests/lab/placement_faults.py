"""Engines to which it matters where a block lies, and one that refuses what a contiguous memory serves."""

from __future__ import annotations

from collections.abc import Callable

from msgspec.structs import replace

from lab import faults
from lab.faults import Fault


def refuses_what_would_fit(run: faults.Recording) -> faults.Recording:
    """NEW asks for no more than the hole holds, and waits all the same."""
    request = run.requests["NEW"]
    smaller = replace(request, prompt=request.prompt[:300])
    return replace(faults.never_served(run), requests={**run.requests, "NEW": smaller}, outputs={})


def in_moves(run: faults.Recording, change: Callable[[faults.Frame], faults.Frame]) -> faults.Recording:
    """Change the frame after the first moves."""
    first = next(index for index, frame in enumerate(run.frames) if frame.moved)
    return faults.in_frames(run, change, where=[first])


def one_owner_is_forgotten(run: faults.Recording) -> faults.Recording:
    """Ben's table still names the block that was moved from under it."""

    def forgotten(frame: faults.Frame) -> faults.Frame:
        block, to = frame.moved[0]
        requests = (
            replace(view, tables=(tuple(block if each == to else each for each in view.blocks),))
            if view.name == "ben"
            else view
            for view in frame.snapshot.requests
        )
        return replace(frame, snapshot=replace(frame.snapshot, requests=tuple(requests)))

    return in_moves(run, forgotten)


def moved_over_another(run: faults.Recording) -> faults.Recording:
    """The first move goes to where ben's last block is."""
    return in_moves(run, lambda frame: replace(frame, moved=((frame.moved[0][0], frame.blocks("ben")[-1]),)))


FAULTS = [
    Fault(
        "refused though it would fit",
        "`NEW` asks for no more than lies side by side, and waits all the same.",
        "holes",
        refuses_what_would_fit,
        {"contiguous": "paging let it wait"},
    ),
    Fault(
        "another answer in shuffled blocks",
        "`ben` gets another last token when physical ids are shuffled.",
        "shuffled",
        lambda run: faults.another_token(run, "ben"),
        {"placement": "of ben differs"},
    ),
    Fault(
        "another answer after moves",
        "`cal` gets another last token when live blocks are moved.",
        "moved",
        lambda run: faults.another_token(run, "cal"),
        {"placement": "of cal differs"},
    ),
    Fault(
        "an owner is forgotten",
        "A shared block moves, and the table of `ben` still names its old place.",
        "moved",
        one_owner_is_forgotten,
        {"placement": "the table of ben must be"},
    ),
    Fault(
        "a move over another's block",
        "A block is moved to one that `ben` holds.",
        "moved",
        moved_over_another,
        {"placement": "which ben holds"},
    ),
]
