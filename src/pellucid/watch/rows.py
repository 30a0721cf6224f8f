"""A row for every live request: what it has, what it was given, what it lost."""

from __future__ import annotations

from itertools import groupby

from rich.cells import cell_len
from rich.text import Text

from pellucid.kv.block import RESERVED_BLOCK
from pellucid.kv.snapshot import RequestView, Snapshot
from pellucid.kv.table import RequestStatus
from pellucid.lang import say, told
from pellucid.view.letters import Letters, shown
from pellucid.view.lines import padded, padded_left
from pellucid.view.runs import runs
from pellucid.view.strips import STATUSES

NAME_WIDTH = 14
NULL = "·"
UNKNOWN = "-"
HEADING = (
    say("name"),
    say("state"),
    say("tokens"),
    say("blocks"),
    say("waste"),
    say("cached"),
    say("pre-empted"),
    say("table"),
)
LEAST_TABLE = 8


def rows(
    snapshot: Snapshot, letters: Letters, width: int = 80, language: str = "en", most: int | None = None
) -> list[Text]:
    """A heading and at most ``most`` lines below it, of which the last says how many requests are left out.

    Running requests come first. ``tokens`` have a slot, ``waste`` are slots of the last block without a token,
    ``cached`` are the tokens that the first admission found: "-" where that is not known (0 is a number).
    A table that does not fit ends with "..".
    """
    letters.meet(request.name for request in snapshot.requests)
    ordered = sorted(snapshot.requests, key=lambda request: request.status is not RequestStatus.RUNNING)
    cells = [_cells(request, snapshot, language) for request in ordered]
    heading = [told(text, language) for text in HEADING]
    widths = [max(map(cell_len, column)) for column in zip(heading, *cells, strict=True)]
    drawn = [_row(request, row, widths, letters, width) for request, row in zip(ordered, cells, strict=True)]
    lines = [Text(_line(heading, widths, width).rstrip(), style="dim")]
    if most is None or len(drawn) <= most:
        return lines + drawn
    kept = max(0, most - 1)
    more = told(say("and {n:,} more", n=len(drawn) - kept), language)
    return [*lines, *drawn[:kept], Text(f"  {more}", style="dim")]


def _cells(request: RequestView, snapshot: Snapshot, language: str) -> list[str]:
    cached = UNKNOWN if request.cached_tokens is None else f"{request.cached_tokens:,}"
    waste = len(request.blocks) * snapshot.pool.block_size - request.slots
    return [
        shown(request.name, NAME_WIDTH),
        told(STATUSES[request.status], language),
        f"{request.slots:,}",
        f"{len(request.blocks):,}",
        f"{waste:,}",
        cached,
        f"{request.preemptions:,}",
        table(request.blocks),
    ]


def table(blocks: tuple[int, ...]) -> str:
    """Physical ids in logical order. Where a window has moved on there is no block, only a place: "·", or "·3" for 3."""
    pieces = []
    for null, run in groupby(blocks, key=lambda block: block == RESERVED_BLOCK):
        places = list(run)
        pieces.append((NULL if len(places) == 1 else f"{NULL}{len(places)}") if null else runs(places))
    return " ".join(pieces) or UNKNOWN


def _row(request: RequestView, cells: list[str], widths: list[int], letters: Letters, width: int) -> Text:
    line = _line(cells, widths, width)
    return Text.assemble((letters.letter(request.name), letters.style(request.name)), line[1:].rstrip())


def _line(cells: list[str], widths: list[int], width: int) -> str:
    *columns, blocks = cells
    texts = [(padded if i < 2 else padded_left)(cell, widths[i]) for i, cell in enumerate(columns)]
    line = f"  {texts[0]} {' '.join(texts[1:])}"
    room = width - cell_len(line) - 2
    return f"{line}  {shown(blocks, room)}" if room >= LEAST_TABLE else shown(line, width)
