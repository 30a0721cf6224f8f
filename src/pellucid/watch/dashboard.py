"""The whole drawing: one engine core in a given room, or several side by side or one below another."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest

from rich.text import Text

from pellucid.kv.snapshot import Snapshot
from pellucid.view import Letters, block_map, legend
from pellucid.watch.head import head
from pellucid.watch.rows import rows
from pellucid.watch.scene import Scene
from pellucid.watch.sums import sums

COLUMN = 76
"""Where each of several cores has as many columns as this they stand side by side."""
GAP = "   "
LEAST_MAP = 2
LEAST_LEFT = 8
"""With fewer lines between head and sums there is no map."""
REMEMBERED = 1_000
"""So many requests that have left keep their letters."""


class Dashboard:
    """Draws the same engine cores again and again, each request under one letter throughout."""

    def __init__(self, cores: int, language: str = "en") -> None:
        self.letters = [Letters() for _ in range(cores)]
        self._language = language

    def lines(self, scenes: Sequence[Scene], width: int = 80, height: int | None = None) -> list[Text]:
        """``scenes``, one of each core, in at most ``height`` lines (None: any number) of at most ``width`` cells."""
        across = max(1, min(len(scenes), (width + len(GAP)) // (COLUMN + len(GAP))))
        down = -(-len(scenes) // across)
        each_width = (width - len(GAP) * (across - 1)) // across
        each_height = None if height is None else max(1, (height - (down - 1)) // down)
        drawn = [
            picture(scene, letters, each_width, each_height, self._language)
            for scene, letters in zip(scenes, self.letters, strict=True)
        ]
        lines: list[Text] = []
        for i in range(0, len(drawn), across):
            lines += [Text()] * bool(lines)
            lines += drawn[i] if across == 1 else _beside(drawn[i : i + across], each_width)
        return lines if height is None else lines[:height]


def picture(scene: Scene, letters: Letters, width: int, height: int | None, language: str) -> list[Text]:
    """One core. Where there is little room the map gets fewer rows, then requests are left out, then the map."""
    snapshot = scene.snapshot
    if letters.remembered > len(snapshot.requests) + REMEMBERED:
        letters.keep(request.name for request in snapshot.requests)
    top, bottom = head(scene, width, language), sums(snapshot, width, language)
    left = None if height is None else height - len(top) - len(bottom)
    if left is not None and left < LEAST_LEFT:
        middle = rows(snapshot, letters, width, language, left - 1) if left > 1 else []
    else:
        middle = _map_and_rows(snapshot, letters, width, left, language)
    return [*top, *middle, *bottom][:height]


def _map_and_rows(snapshot: Snapshot, letters: Letters, width: int, height: int | None, language: str) -> list[Text]:
    marks = legend(snapshot, letters, width, language, names=False)
    room = None if height is None else height - len(marks) - 3  # for blank lines
    rows_of_map = None
    if room is not None:
        spare = room - 2  # ruler and scale
        rows_of_map = max(LEAST_MAP, spare // 2, spare - len(snapshot.requests) - 1)
    cells = block_map(snapshot, letters, width, language, rows_of_map)
    table = rows(snapshot, letters, width, language, None if room is None else room - len(cells) - 1)
    return [Text(), *cells, *marks, Text(), *table, Text()]


def _beside(columns: Sequence[Sequence[Text]], width: int) -> list[Text]:
    lines = []
    for pieces in zip_longest(*columns, fillvalue=Text()):
        line = Text()
        for i, piece in enumerate(pieces):
            padding = " " * (width - piece.cell_len) if i < len(pieces) - 1 else ""
            line.append(GAP if i else "").append_text(piece).append(padding)
        lines.append(line)
    return lines
