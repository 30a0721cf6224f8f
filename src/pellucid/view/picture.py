"""The whole picture of a snapshot: map, legend, tables, totals."""

from __future__ import annotations

from rich.text import Text

from pellucid.kv.snapshot import Snapshot
from pellucid.view.block_map import block_map, legend
from pellucid.view.letters import Letters
from pellucid.view.strips import strips
from pellucid.view.totals import totals


def picture(snapshot: Snapshot, letters: Letters | None = None, width: int = 80, language: str = "en") -> list[Text]:
    """One line a `Text`, none longer than ``width``. Pass the same ``letters`` to compare pictures."""
    letters = letters or Letters()
    lines = [*block_map(snapshot, letters, width, language), *legend(snapshot, letters, width, language)]
    if snapshot.requests:
        lines += [Text(), *strips(snapshot, letters, width, language)]
    return [*lines, Text(), *totals(snapshot, width, language)]
