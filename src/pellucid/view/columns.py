"""Laying rows of cells out in columns of a given width in all."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import zip_longest

from rich.cells import cell_len

from pellucid.view.lines import longest_piece, padded, padded_left, wrapped

GAP = "  "


def columns(rows: Sequence[Sequence[str]], width: int) -> list[list[str]]:
    """The lines of each of ``rows``, of which the first is the heading; none is longer than ``width``.

    Cells that are too long go on below, the widest column first. Columns of numbers end at the same
    place, others begin there. Empty if there is no room for the longest word of each column.
    """
    cells = list(zip(*rows, strict=True))
    widths = [max(map(cell_len, column)) for column in cells]
    least = [max(map(longest_piece, column)) for column in cells]
    room = width - len(GAP) * (len(cells) - 1)
    if sum(least) > room:
        return []
    while sum(widths) > room:
        widest = max(range(len(cells)), key=lambda i: widths[i] if widths[i] > least[i] else 0)
        widths[widest] -= 1
    pads = [padded_left if all(map(_is_number, column[1:])) else padded for column in cells]
    return [
        [_line(line, widths, pads) for line in zip_longest(*map(wrapped, row, widths), fillvalue="")] for row in rows
    ]


def _line(pieces: Sequence[str], widths: Sequence[int], pads: Sequence[Callable[[str, int], str]]) -> str:
    return GAP.join(pad(piece, width) for piece, width, pad in zip(pieces, widths, pads, strict=True)).rstrip()


def _is_number(cell: str) -> bool:
    return cell.strip("+-%")[:1].isdigit() or cell in ("", "-")
