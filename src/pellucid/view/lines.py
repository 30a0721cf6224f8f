"""Laying text out in lines of a given width, counted in cells: a character of Korean or Chinese takes two."""

from __future__ import annotations

import re
from collections.abc import Iterable

from rich.cells import cell_len, chop_cells
from rich.text import Text

HAN = "\u3400-\u9fff"
OPENING = "（《「“"
CLOSING = "，。、；：）》」”！？"
PIECE = re.compile(rf"\s+|(?=\S)[{OPENING}]*(?:[{HAN}]|[^\s{HAN}{OPENING}{CLOSING}]+)?[{CLOSING}]*")
"""What stays in one line: a Chinese character or a word of any other script, with the marks that belong to it."""


def flow(pieces: Iterable[Text], width: int, *, gap: str = "   ", indent: int = 0) -> list[Text]:
    """``pieces`` side by side, a new line (indented by ``indent``) whenever the next does not fit."""
    lines: list[Text] = []
    for piece in pieces:
        if lines and lines[-1].cell_len + len(gap) + piece.cell_len <= width:
            lines[-1].append(gap).append_text(piece)
        else:
            lines.append(Text(" " * indent if lines else "").append_text(piece))
    return lines


def wrapped(text: str, width: int) -> list[str]:
    """``text`` in lines of at most ``width`` cells, broken at spaces and, in Chinese, between any two characters.

    A piece that is longer than a line is cut. The gap at a break is dropped, any other stays as it is.
    """
    lines, line, gap = [], "", ""
    for piece in (found[0] for found in PIECE.finditer(text)):
        if piece.isspace():
            gap = piece
            continue
        if line.strip() and cell_len(line + gap + piece) > width:
            lines.append(line)
            line, gap = "", ""
        line, gap = line + gap + piece, ""
        if cell_len(line) > width:
            *full, line = chop_cells(line, width)
            lines += full
    return [*lines, line] if line else lines


def longest_piece(text: str) -> int:
    """The cells of the longest part of ``text`` that `wrapped` would rather not cut."""
    return max(map(cell_len, PIECE.findall(text)), default=0)


def padded(text: str, width: int) -> str:
    """``text`` and spaces after it, ``width`` cells in all."""
    return text + " " * (width - cell_len(text))


def padded_left(text: str, width: int) -> str:
    """Spaces and then ``text``, ``width`` cells in all."""
    return " " * (width - cell_len(text)) + text
