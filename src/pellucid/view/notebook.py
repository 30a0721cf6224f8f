"""How a notebook shows what ``llm.kv`` gives."""

from __future__ import annotations

from rich.text import Text

from pellucid.kv.reader import KVReader
from pellucid.kv.snapshot import RequestView, Snapshot
from pellucid.view.html import alone
from pellucid.view.html import picture as html_picture
from pellucid.view.html.cell import NAME_WIDTH
from pellucid.view.html.tables import table_of
from pellucid.view.letters import shown
from pellucid.view.picture import picture
from pellucid.view.runs import runs


def as_html(what: Snapshot | RequestView | KVReader) -> str:
    """Map, legend, tables and totals; of a request its table."""
    if isinstance(what, RequestView):
        return alone(table_of(what))
    return alone(html_picture(_snapshot(what)))


def as_text(what: Snapshot | RequestView | KVReader) -> str:
    """The same in characters."""
    if isinstance(what, RequestView):
        return _in_a_line(what)
    lines: list[Text] = picture(_snapshot(what))
    return "\n".join(line.plain.rstrip() for line in lines)


def _in_a_line(request: RequestView) -> str:
    name, held = shown(request.name, NAME_WIDTH), len(request.blocks)
    table = runs(request.blocks)
    return f"{name}: {request.status}, {request.slots:,} tokens with a slot, {held:,} blocks: {table}"


def _snapshot(what: Snapshot | KVReader) -> Snapshot:
    return what.snapshot() if isinstance(what, KVReader) else what
