"""A row for every live request: what it has, what it was given, what it lost."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby

from rich.cells import cell_len
from rich.text import Text

from pellucid.kv.block import RESERVED_BLOCK
from pellucid.kv.snapshot import GroupView, RequestView, Snapshot
from pellucid.kv.table import RequestStatus
from pellucid.lang import say, told
from pellucid.view.letters import Letters, shown
from pellucid.view.lines import padded, padded_left
from pellucid.view.runs import runs
from pellucid.view.strips import STATUSES

NAME_WIDTH = 14
"""At 80 columns; wider ones have more room for names, up to ``LONGEST_NAME``."""
LONGEST_NAME = 48
GROUP_WIDTH = 26
NULL = "·"
UNKNOWN = "-"
HEADING = (
    say("name"),
    say("state"),
    say("tokens"),
    say("blocks"),
    say("waste"),
    say("cached"),
    say("preemptions"),
    say("table"),
)
LEAST = (8, 9, 6, 6, 5, 6, 11, 0)
"""Columns stay where they are while requests come, go and grow."""
LEAST_TABLE = 8


def rows(
    snapshot: Snapshot, letters: Letters, width: int = 80, language: str = "en", most: int | None = None
) -> list[Text]:
    """A heading and at most ``most`` lines below it, of which the last says how many requests are left out.

    Running requests come first. ``tokens`` have a slot, ``waste`` are slots of last blocks without a token,
    ``cached`` are the tokens that the first admission found: "-" where that is not known (0 is a number).
    A table that does not fit ends with "..". Where there are several KV groups each has a line of its own.
    """
    requests = sorted(snapshot.requests, key=lambda request: request.status is not RequestStatus.RUNNING)
    letters.meet(request.name for request in snapshot.requests)
    each = 1 if len(snapshot.groups) == 1 else 1 + len(snapshot.groups)
    fits = len(requests) if most is None or each * len(requests) <= most else max(0, (most - 1) // each)
    heading = [told(text, language) for text in HEADING]
    names = min(LONGEST_NAME, max(NAME_WIDTH, NAME_WIDTH + (width - 80) // 2))
    cells = [_cells(request, snapshot, names, language) for request in requests[:fits]]
    widths = [max(map(cell_len, column)) for column in zip(heading, *cells, strict=True)]
    widths = [max(pair) for pair in zip(widths, LEAST, strict=True)]
    lines = [Text(_line(heading, widths, width).rstrip(), style="dim")]
    for request, row in zip(requests, cells, strict=False):
        letter = letters.letter(request.name), letters.style(request.name)
        lines.append(Text.assemble(letter, _line(row, widths, width)[1:].rstrip()))
        lines += _group_lines(request, snapshot.groups, width) if each > 1 else ()
    if fits < len(requests):
        more = told(say("and {n:,} more", n=len(requests) - fits), language)
        lines.append(Text(f"  {more}", style="dim"))
    return lines


def _cells(request: RequestView, snapshot: Snapshot, names: int, language: str) -> list[str]:
    cached = UNKNOWN if request.cached_tokens is None else f"{request.cached_tokens:,}"
    return [
        shown(request.name, names),
        told(STATUSES[request.status], language),
        f"{request.slots:,}",
        f"{len(request.held):,}",
        f"{waste(request, snapshot.groups):,}",
        cached,
        f"{request.preemptions:,}",
        table(request.tables[0]) if len(request.tables) == 1 else "",
    ]


def waste(request: RequestView, groups: Iterable[GroupView]) -> int:
    """Slots in the last block of each of its tables that hold no token."""
    tables = zip(groups, request.tables, strict=True)
    return sum(len(blocks) * group.block_size - request.slots for group, blocks in tables)


def table(blocks: Iterable[int]) -> str:
    """Physical ids in logical order. Where a window has moved on there is only a place: "·", or "·3" for three."""
    pieces = []
    for null, run in groupby(blocks, key=lambda block: block == RESERVED_BLOCK):
        places = list(run)
        pieces.append((NULL if len(places) == 1 else f"{NULL}{len(places)}") if null else runs(places))
    return " ".join(pieces) or UNKNOWN


def _group_lines(request: RequestView, groups: Sequence[GroupView], width: int) -> Iterator[Text]:
    names = [shown(group_name(number, group), GROUP_WIDTH) for number, group in enumerate(groups)]
    indent = max(map(cell_len, names)) + 6
    for name, blocks in zip(names, request.tables, strict=True):
        yield Text.assemble((padded(f"    {name}", indent), "dim"), shown(table(blocks), width - indent))


def group_name(number: int, group: GroupView) -> str:
    """What tells a KV group from the others: its number, its kind, its window in tokens."""
    return f"{number} {group.kind}" if group.window is None else f"{number} {group.kind} {group.window:,}"


def _line(cells: list[str], widths: list[int], width: int) -> str:
    *columns, blocks = cells
    texts = [(padded if i < 2 else padded_left)(cell, widths[i]) for i, cell in enumerate(columns)]
    line = f"  {texts[0]} {' '.join(texts[1:])}"
    room = width - cell_len(line) - 2
    return f"{line}  {shown(blocks, room)}" if room >= LEAST_TABLE else shown(line, width)
