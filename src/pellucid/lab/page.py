"""The page that a report is written on: how wide it is, and in which language."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from pellucid.lab.proof import Table
from pellucid.lang import told
from pellucid.view.columns import columns
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

    def facts(self, facts: Iterable[tuple[str, str]], *, indent: int = 0) -> Iterator[Text]:
        """Each fact behind its label; a label that would take more than half of the line stands above."""
        rows = [(self.told(label), self.told(value)) for label, value in facts]
        label_width = min(max(cell_len(label) for label, _ in rows) + 2, self.width // 2)
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
        """``table`` in columns; where they do not fit, one row after the other, each cell behind its heading."""
        header, *rows = ([self.told(cell) for cell in row] for row in (table.header, *table.rows))
        heading, *drawn = columns([header, *rows], self.width - indent) or [[]]
        for line in heading:
            yield Text(" " * indent).append(line, style="dim")
        for line in (line for lines in drawn for line in lines):
            yield Text(" " * indent + line)
        if not heading:
            for row in rows:
                yield from self.facts(zip(header, row, strict=True), indent=indent)
