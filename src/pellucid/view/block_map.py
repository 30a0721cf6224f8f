"""The block map: one character for every physical block of the pool, in order of its id."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import NamedTuple, TypeVar

from rich.text import Text

from pellucid.kv.block import BlockState
from pellucid.kv.snapshot import Snapshot
from pellucid.lang import say, told
from pellucid.view.letters import Letters, shown
from pellucid.view.lines import flow, wrapped

CELLS_IN_ALL = 4096
GROUP = 16
MARKS = {
    BlockState.RESERVED: ("#", "dim"),
    BlockState.CACHED: ("+", "color(161)"),
    BlockState.FREE: (".", "dim"),
    BlockState.FENCED: ("~", "color(166)"),
}
SHARED = "bold color(231) on color(161)"
STATES = {
    BlockState.RESERVED: say("reserved"),
    BlockState.CACHED: say("cached"),
    BlockState.FREE: say("free"),
    BlockState.FENCED: say("fenced"),
}
UNKNOWN_OWNER = "?"
MANY = "*"


AnyMark = TypeVar("AnyMark")


class Mark(NamedTuple):
    """How one block is drawn: a character and a rich style."""

    character: str
    style: str


NOBODY_KNOWN = Mark(UNKNOWN_OWNER, "color(160)")


def marks(snapshot: Snapshot, letters: Letters) -> list[Mark]:
    """One mark for every block.

    A held block shows the letter of its owner, or, if it has several, how many (``*`` from ten on);
    one that no table of the snapshot holds shows ``?``.
    """
    pool = snapshot.pool
    known = {name: Mark(letters.letter(name), letters.style(name)) for name in (r.name for r in snapshot.requests)}
    owner = {block: known[request.name] for request in snapshot.requests for block in request.held}
    states = {state: Mark(*mark) for state, mark in MARKS.items()}
    result = []
    for block, state in enumerate(pool.states):
        if state is not BlockState.HELD:
            result.append(states[state])
        elif pool.owners[block] > 1:
            result.append(Mark(str(pool.owners[block]) if pool.owners[block] < 10 else MANY, SHARED))
        else:
            result.append(owner.get(block, NOBODY_KNOWN))
    return result


def block_map(
    snapshot: Snapshot, letters: Letters, width: int = 80, language: str = "en", rows: int | None = None
) -> list[Text]:
    """The map in rows of at most 128 cells, each after the id of its first block, under a ruler.

    In a pool of more than 4,096 blocks, or more than fit in ``rows`` if that is given, one cell stands for
    several neighbours, shows the mark that most of them have, and the first line says so.
    """
    letters.meet(request.name for request in snapshot.requests)
    label = max(4, len(str(snapshot.pool.total - 1)))
    row = next((size for size in (128, 64, 32) if label + 2 + size + size // GROUP - 1 <= width), GROUP)
    each = neighbours(snapshot, CELLS_IN_ALL if rows is None else rows * row)
    cells = summarised(marks(snapshot, letters), each)
    lines: list[Text] = []
    if each > 1:
        text = say("one cell stands for {n} blocks, and shows the mark that most of them have", n=each)
        lines += map(Text, wrapped(told(text, language), width))
    lines.append(_ruler(min(row, len(cells)), label, each))
    for start in range(0, len(cells), row):
        lines.append(_row(cells[start : start + row], f"{start * each:>{label}}  "))
    return lines


def legend(
    snapshots: Snapshot | Iterable[Snapshot],
    letters: Letters,
    width: int = 80,
    language: str = "en",
    *,
    names: bool = True,
) -> list[Text]:
    """What each mark on the map, or on several maps, means; only those that are there, letters only if ``names``."""
    seen = [snapshots] if isinstance(snapshots, Snapshot) else list(snapshots)
    holders = {request.name for snapshot in seen for request in snapshot.requests if request.held}
    pieces = [
        _piece(letters.letter(name), letters.style(name), shown(name, 24))
        for name in sorted(holders if names else (), key=letters.number)
    ]
    shared = sorted({owners for snapshot in seen for owners in snapshot.pool.owners[1:] if owners > 1})
    if shared:
        numbers = [str(owners) for owners in shared if owners < 10] + ([MANY] if shared[-1] > 9 else [])
        pieces.append(_piece(" ".join(numbers), SHARED, told(say("owners: shared"), language)))
    there = {state for snapshot in seen for state in snapshot.pool.states}
    for state, (character, style) in MARKS.items():
        if state in there:
            pieces.append(_piece(character, style, told(STATES[state], language)))
    return flow(pieces, width)


def _piece(character: str, style: str, meaning: str) -> Text:
    return Text.assemble((character, style), f" {meaning}")


def neighbours(snapshot: Snapshot, cells: int = CELLS_IN_ALL) -> int:
    """How many blocks one cell of a map of at most ``cells`` stands for: 1 unless the pool is very large."""
    return -(-snapshot.pool.total // cells)


def summarised(cells: Sequence[AnyMark], each: int) -> Sequence[AnyMark]:
    """One of ``cells`` for every ``each`` of them: what most of them are."""
    if each == 1:
        return cells
    return [Counter(cells[i : i + each]).most_common(1)[0][0] for i in range(0, len(cells), each)]


def _ruler(cells: int, label: int, each: int) -> Text:
    columns = [f"{column * each:<{GROUP}}" for column in range(0, cells, GROUP)]
    return Text(f"{'':{label}}  {' '.join(columns).rstrip()}", style="dim")


def _row(cells: Sequence[Mark], label: str) -> Text:
    line = Text(label, style="")
    line.stylize("dim")
    for i, (character, style) in enumerate(cells):
        line.append(" " if i and i % GROUP == 0 else "", style="")
        line.append(character, style=style)
    return line
