"""Laying pieces of text out in lines of a given width."""

from __future__ import annotations

from collections.abc import Iterable

from rich.text import Text


def flow(pieces: Iterable[Text], width: int, *, gap: str = "   ", indent: int = 0) -> list[Text]:
    """``pieces`` side by side, a new line (indented by ``indent``) whenever the next does not fit."""
    lines: list[Text] = []
    for piece in pieces:
        if lines and lines[-1].cell_len + len(gap) + piece.cell_len <= width:
            lines[-1].append(gap).append_text(piece)
        else:
            lines.append(Text(" " * indent if lines else "").append_text(piece))
    return lines
