"""The timeline of a recording: step × block in colours, and what the slider needs to show any moment of it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import Any, NamedTuple

from pellucid.kv.snapshot import RequestView
from pellucid.lab.recording import Frame, Recording
from pellucid.view import Letters, runs
from pellucid.view.block_map import neighbours, summarised
from pellucid.view.html import Cell, Totals, cells
from pellucid.view.html.cell import NAME_WIDTH, owner_cell
from pellucid.view.letters import shown
from pellucid.view.strips import STATUSES

MOST_MARKS = 1_000_000
"""Steps × cells of one timeline: a browser still moves the slider through that many without a delay."""


class Patch(NamedTuple):
    """One colour on the timeline: cells ``first`` to ``last`` look alike from column ``start`` to before ``end``."""

    first: int
    last: int
    cell: Cell
    start: int
    end: int


class Timeline:
    """The moments of a recording that are shown: all of them, or every ``stride``-th if they are too many.

    ``columns[i]`` is what the block map shows at moment ``i``, ``each`` how many blocks one cell stands for.
    """

    def __init__(self, recording: Recording, most: int = MOST_MARKS) -> None:
        frames = recording.frames
        pool = frames[0].snapshot.pool
        self.each = neighbours(frames[0].snapshot)
        self.blocks = pool.total
        self.block_size = pool.block_size
        self.all_moments = len(frames)
        self.stride = -(-len(frames) * -(-pool.total // self.each) // most)
        self.frames = _thinned(frames, self.stride)
        self.letters = Letters(request.name for frame in frames for request in frame.snapshot.requests)
        self.blocks_drawn = [cells(frame.snapshot, self.letters) for frame in self.frames]
        self.columns = [summarised(column, self.each) for column in self.blocks_drawn]

    @property
    def peak(self) -> int:
        """The moment at which most blocks are held."""
        return max(range(len(self.frames)), key=lambda i: self.frames[i].snapshot.pool.held)

    def patches(self) -> list[Patch]:
        """The columns, with neighbours that look alike joined: first along the blocks, then along the steps."""
        done: list[Patch] = []
        open_: dict[tuple[int, int, Cell], int] = {}
        for number, column in enumerate(self.columns):
            found = set(stretches(column))
            done += [Patch(*key, start, number) for key, start in open_.items() if key not in found]
            open_ = {key: open_.get(key, number) for key in found}
        done += [Patch(*key, start, len(self.columns)) for key, start in open_.items()]
        return sorted(done, key=lambda patch: (patch.start, patch.first))


def stretches(column: Sequence[Cell]) -> Iterable[tuple[int, int, Cell]]:
    """First, last and looks of neighbouring cells that look alike."""
    position = 0
    for cell, group in groupby(column):
        length = len(list(group))
        yield position, position + length - 1, cell
        position += length


def data(timeline: Timeline) -> dict[str, Any]:
    """What report.js draws moments from, as plain JSON values.

    ``cells`` are the different looks of a block; ``requests`` the different requests by letter, look and
    name. A moment is ``[step, added, aborted, changes, tables, totals]``: ``changes`` are the blocks that
    look otherwise than the moment before, as ``[first, length, cell]``; a table is ``[request, status,
    tokens, kept, rest]``, where ``kept`` of the table of the moment before are followed by the ids in
    ``rest`` (as in `pellucid.view.runs`).
    """
    looks: dict[Cell, int] = {}
    names: dict[str, int] = {}
    moments = []
    before: Sequence[Cell] = ()
    tables: dict[str, tuple[int, ...]] = {}
    for frame, drawn in zip(timeline.frames, timeline.blocks_drawn, strict=True):
        rows = [_table(request, tables, names) for request in frame.snapshot.requests]
        moments.append(
            [
                frame.step,
                _shown(frame.added),
                _shown(frame.aborted),
                _changes(before, drawn, looks),
                rows,
                _totals(frame),
            ]
        )
        before = drawn
        tables = {request.name: request.blocks for request in frame.snapshot.requests}
    return {
        "blockSize": timeline.block_size,
        "blocks": timeline.blocks,
        "each": timeline.each,
        "cells": list(looks),
        "requests": [owner_cell(name, timeline.letters) for name in names],
        "statuses": list(STATUSES.values()),
        "moments": moments,
    }


def _thinned(frames: Sequence[Frame], stride: int) -> list[Frame]:
    """Every ``stride``-th, and the last."""
    kept = list(frames[::stride])
    return kept if kept[-1] is frames[-1] else [*kept, frames[-1]]


def _shown(names: Iterable[str]) -> list[str]:
    return [shown(name, NAME_WIDTH) for name in names]


def _changes(before: Sequence[Cell], drawn: Sequence[Cell], looks: dict[Cell, int]) -> list[list[int]]:
    changes: list[list[int]] = []
    for first, last, cell in stretches(drawn):
        look = looks.setdefault(cell, len(looks))
        if not before:
            changes.append([first, last - first + 1, look])
            continue
        for block in range(first, last + 1):
            if before[block] == cell:
                continue
            if changes and changes[-1][2] == look and sum(changes[-1][:2]) == block:
                changes[-1][1] += 1
            else:
                changes.append([block, 1, look])
    return changes


def _table(request: RequestView, before: dict[str, tuple[int, ...]], names: dict[str, int]) -> list[Any]:
    old, new = before.get(request.name, ()), request.blocks
    kept = next((i for i, (a, b) in enumerate(zip(old, new, strict=False)) if a != b), min(len(old), len(new)))
    rest = runs(new[kept:]) if new[kept:] else ""
    number = names.setdefault(request.name, len(names))
    return [number, list(STATUSES).index(request.status), request.slots, kept, rest]


def _totals(frame: Frame) -> list[int]:
    return list(Totals.of(frame.snapshot))
