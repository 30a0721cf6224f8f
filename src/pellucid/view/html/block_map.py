"""The block map as HTML: one cell for every physical block, in order of its id."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from pellucid.kv.snapshot import Snapshot
from pellucid.lang import say
from pellucid.view.block_map import GROUP, neighbours, summarised
from pellucid.view.html.cell import Cell, cells, owner_cell
from pellucid.view.html.markup import Element, element
from pellucid.view.html.totals import totals_sentence
from pellucid.view.letters import Letters

ORDER = ("shared", "unknown", "reserved", "cached", "free", "fenced")


def block_map(snapshot: Snapshot, letters: Letters) -> Element:
    """Groups of 16 cells after the id of their first block; how many stand in a row depends on the width.

    In a pool of more than 4,096 blocks one cell stands for several neighbours, as in the terminal.
    """
    each = neighbours(snapshot)
    drawn = summarised(cells(snapshot, letters), each)
    groups = [_group(drawn[start : start + GROUP], start * each) for start in range(0, len(drawn), GROUP)]
    grid = element(
        "div", *groups, class_="map", role="img", aria_label=totals_sentence(snapshot), data_each=each,
        style=f"--digits:{len(str(snapshot.pool.total - 1))}",
    )  # fmt: skip
    if each == 1:
        return grid
    note = say("one cell stands for {n} blocks, and shows the mark that most of them have", n=each)
    return element("div", element("p", note, class_="note"), grid)


def legend(drawn: Iterable[Cell], letters: Letters) -> Element:
    """What each mark that is there means: requests in the order of ``letters``, then everything else."""
    found = set(drawn)
    owners = [cell for name in letters if (cell := owner_cell(name, letters)) in found]
    others = sorted(found.difference(owners), key=lambda cell: (ORDER.index(cell.kind), cell.character))
    return element("ul", *map(_entry, [*owners, *others]), class_="legend")


def _group(row: Sequence[Cell], first: int) -> Element:
    marks = (element("b", cell.character, class_=cell.kind) for cell in row)
    return element("span", element("i", f"{first}"), *marks)


def _entry(cell: Cell) -> Element:
    return element("li", element("b", cell.character, class_=cell.kind), element("span", cell.meaning))
