"""The page that a report is written on: how wide it is, and in which language."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from rich.cells import cell_len
from rich.console import Console
from rich.table import Table as Grid
from rich.text import Text

from pellucid.lab.proof import Table
from pellucid.lang import told
from pellucid.view.lines import padded, wrapped

WIDTH = 80
NARROWEST = 40


class Page(NamedTuple):
    """``width`` in cells: no line of what its methods give is longer, `WIDTH` at most and `NARROWEST` at least."""

    width: int = WIDTH
    language: str = "en"

    @classmethod
    def of(cls, console: Console, language: str) -> Page:
        return cls(max(NARROWEST, min(console.width, WIDTH)), language)

    def told(self, text: str) -> str:
        return told(text, self.language)

    def paragraph(self, text: str, style: str = "", *, indent: int = 0) -> Iterator[Text]:
        for line in wrapped(self.told(text), self.width - indent):
            yield Text(" " * indent + line, style=style)

    def facts(self, facts: Iterable[tuple[str, str]], *, indent: int = 0, column: int | None = None) -> Iterator[Text]:
        """Each fact behind its label, in a ``column`` as wide as the labels need; a label too long stands above."""
        rows = [(self.told(label), self.told(value)) for label, value in facts]
        label_width = column or min(max(cell_len(label) for label, _ in rows) + 2, self.width // 2)
        for label, value in rows:
            lines = wrapped(value, self.width - indent - label_width) or [""]
            if cell_len(label) + 1 > label_width:
                for line in wrapped(label, self.width - indent):
                    yield Text(" " * indent).append(line, style="dim")
                label = ""
            for i, line in enumerate(lines):
                head = padded("" if i else label, label_width)
                yield Text(" " * indent).append(head, style="dim").append(line)

    def table(self, table: Table, *, indent: int = 0) -> Iterator[Text]:
        """``table`` in columns; those of numbers end at the same place."""
        grid = Grid(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
        for header, *cells in zip(table.header, *table.rows, strict=True):
            grid.add_column(Text(self.told(header)), justify="right" if all(map(_is_number, cells)) else "left")
        for row in table.rows:
            grid.add_row(*(Text(self.told(cell)) for cell in row))
        for line in Console(width=self.width - indent).render_lines(grid, pad=False):
            text = Text.assemble(*((segment.text, segment.style or "") for segment in line))
            text.rstrip()
            yield Text(" " * indent).append_text(text)


def _is_number(cell: str) -> bool:
    return cell.strip("+-%")[:1].isdigit() or cell in ("", "-")
