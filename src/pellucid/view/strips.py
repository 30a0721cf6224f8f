"""The block tables as strips: one line a request, its physical blocks in logical order."""

from __future__ import annotations

from rich.cells import cell_len
from rich.text import Text

from pellucid.kv.snapshot import RequestView, Snapshot
from pellucid.kv.table import RequestStatus
from pellucid.lang import say, told
from pellucid.view.letters import Letters, shown
from pellucid.view.lines import flow, padded, padded_left
from pellucid.view.runs import runs

NAME_WIDTH = 16
LEAST_TABLE = 12
STATUSES = {
    RequestStatus.WAITING: say("waiting"),
    RequestStatus.RUNNING: say("running"),
    RequestStatus.PREEMPTED: say("preempted"),
}


def strips(snapshot: Snapshot, letters: Letters, width: int = 80, language: str = "en") -> list[Text]:
    """Letter, name, state, tokens, blocks, waste and table of every live request, under a heading.

    ``tokens`` are those that have a slot (the newest one gets its slot in the next step), ``waste``
    are slots of the last block that hold none: tokens + waste = blocks x block size. Where columns do
    not fit, a request has its numbers in one line and its table below.
    """
    requests = snapshot.requests
    letters.meet(request.name for request in requests)
    rows = [_cells(request, snapshot.pool.block_size, language) for request in requests]
    heading = [told(text, language) for text in (say("name"), say("state"), say("tokens"), say("blocks"), say("waste"))]
    cells = zip(_least(language), zip(heading, *rows, strict=True), strict=True)
    columns = [max(least, *map(cell_len, column)) for least, column in cells]
    title = told(say("table"), language)
    if 3 + cell_len(_head(heading, columns)) + LEAST_TABLE > width:
        return _in_words(snapshot, letters, width, language)
    lines = [Text(f"  {_head(heading, columns)}  {title}", style="dim")]
    for request, row in zip(requests, rows, strict=True):
        lines += _strip(request, f" {_head(row, columns)}  ", letters, width)
    return lines


def _cells(request: RequestView, block_size: int, language: str) -> list[str]:
    waste = len(request.blocks) * block_size - request.slots
    status = told(STATUSES[request.status], language)
    return [shown(request.name, NAME_WIDTH), status, str(request.slots), str(len(request.blocks)), str(waste)]


def _least(language: str) -> tuple[int, ...]:
    """Columns stay where they are while requests change their state and grow."""
    return 4, max(cell_len(told(status, language)) for status in STATUSES.values()), 6, 6, 5


def _head(cells: list[str], columns: list[int]) -> str:
    name, state, *numbers = (
        (padded if i < 2 else padded_left)(cell, width)
        for i, (cell, width) in enumerate(zip(cells, columns, strict=True))
    )
    return f"{name}  {state} {' '.join(numbers)}"


def _strip(request: RequestView, head: str, letters: Letters, width: int) -> list[Text]:
    indent = 1 + cell_len(head)
    first, *rest = flow(map(Text, runs(request.blocks).split(" ")), width - indent, gap=" ")
    letter = letters.letter(request.name), letters.style(request.name)
    return [Text.assemble(letter, head, first), *(Text(" " * indent).append_text(line) for line in rest)]


def _in_words(snapshot: Snapshot, letters: Letters, width: int, language: str) -> list[Text]:
    lines = []
    for request in snapshot.requests:
        name, status, tokens, blocks, waste = _cells(request, snapshot.pool.block_size, language)
        numbers = say("{tokens} tokens, {blocks} blocks, waste {waste}", tokens=tokens, blocks=blocks, waste=waste)
        letter = letters.letter(request.name), letters.style(request.name)
        pieces = [Text.assemble(letter, f" {name}  {status}"), Text(told(numbers, language))]
        lines += flow(pieces, width, gap="  ", indent=2)
        table = flow(map(Text, runs(request.blocks).split(" ")), width - 2, gap=" ")
        lines += [Text("  ").append_text(line) for line in table]
    return lines
