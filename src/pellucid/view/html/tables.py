"""The block tables as strips: one row a request, its physical blocks in logical order."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from pellucid.kv.snapshot import RequestView, Snapshot
from pellucid.lang import say
from pellucid.view.html.cell import Cell, cells, owner_cell
from pellucid.view.html.markup import Element, element
from pellucid.view.letters import Letters
from pellucid.view.strips import STATUSES

NUMBERS = (say("tokens"), say("blocks"), say("waste"))

Drawn = Sequence[Cell] | Mapping[int, Cell]
"""What stands for each block."""


class Run(NamedTuple):
    """Neighbours of a table whose ids climb or descend by one and that look alike."""

    first: int
    last: int
    cell: Cell

    @property
    def length(self) -> int:
        return abs(self.last - self.first) + 1


def tables(snapshot: Snapshot, letters: Letters) -> Element:
    """A table: letter and name, state, tokens, blocks, waste and the strip of every live request."""
    drawn, size = cells(snapshot, letters), snapshot.pool.block_size
    rows = (
        _row(request, owner_cell(request.name, letters), drawn, len(request.blocks) * size - request.slots)
        for request in snapshot.requests
    )
    return _table(NUMBERS, rows)


def table_of(request: RequestView) -> Element:
    """The same of one request, of whose pool nothing is known: without waste, and not telling what is shared."""
    owner = owner_cell(request.name, Letters())
    return _table(NUMBERS[:2], [_row(request, owner, dict.fromkeys(request.blocks, owner))])


def strip(blocks: Iterable[int], drawn: Drawn) -> Element:
    """One box a run, as wide as it is long, with the ids of its first and last block."""
    return element("span", *map(_box, runs(blocks, drawn)), class_="strip")


def runs(blocks: Iterable[int], drawn: Drawn) -> list[Run]:
    """``blocks`` in their order; blocks with more than one owner stand apart from those with one."""
    found: list[Run] = []
    for block in blocks:
        cell = drawn[block]
        if found and found[-1].cell == cell and _continues(found[-1], block):
            found[-1] = found[-1]._replace(last=block)
        else:
            found.append(Run(block, block, cell))
    return found


def _continues(run: Run, block: int) -> bool:
    step = block - run.last
    return abs(step) == 1 and (run.first == run.last or (run.last > run.first) == (step > 0))


def _table(numbers: Iterable[str], rows: Iterable[Element]) -> Element:
    headings = [
        element("th", say("name"), scope="col"),
        element("th", say("state"), scope="col"),
        *(element("th", number, scope="col", class_="n") for number in numbers),
        element("th", say("table"), scope="col"),
    ]
    return element("table", element("thead", element("tr", *headings)), element("tbody", *rows), class_="tables")


def _row(request: RequestView, owner: Cell, drawn: Drawn, *waste: int) -> Element:
    numbers = (request.slots, len(request.blocks), *waste)
    return element(
        "tr",
        element("th", named(owner), scope="row"),
        element("td", STATUSES[request.status]),
        *(
            element("td", str(number), class_="n", data_label=label)
            for number, label in zip(numbers, NUMBERS, strict=False)
        ),
        element("td", strip(request.blocks, drawn)),
    )


def named(owner: Cell) -> Element:
    """The sign of a request beside its name."""
    return element(
        "span", element("b", owner.character, class_=owner.kind), element("span", owner.meaning), class_="named"
    )


def _box(run: Run) -> Element:
    ids = str(run.first) if run.length == 1 else f"{run.first}–{run.last}"
    sign = (element("b", run.cell.character),) if run.cell.kind == "shared" else ()
    return element("span", *sign, ids, class_=run.cell.kind, style=f"--n:{run.length}")
