"""The whole picture of a snapshot as HTML, and the style sheet that all pictures share."""

from __future__ import annotations

from functools import cache
from importlib.resources import files

from pellucid.kv.snapshot import Snapshot
from pellucid.view.html.block_map import block_map, legend
from pellucid.view.html.cell import cells
from pellucid.view.html.markup import Element, Raw, element, written
from pellucid.view.html.tables import tables
from pellucid.view.html.totals import totals
from pellucid.view.letters import Letters


def picture(snapshot: Snapshot, letters: Letters | None = None) -> Element:
    """Map, legend, tables and totals. Pass the same ``letters`` to compare pictures."""
    letters = letters or Letters()
    letters.meet(request.name for request in snapshot.requests)
    parts = [block_map(snapshot, letters), legend(cells(snapshot, letters), letters)]
    if snapshot.requests:
        parts.append(tables(snapshot, letters))
    return element("div", *parts, totals(snapshot), class_="picture")


@cache
def style() -> str:
    """The style sheet of pictures: all of it below the class ``pellucid``."""
    return files("pellucid.view.html").joinpath("picture.css").read_text(encoding="utf-8")


def alone(*parts: Element, language: str = "en") -> str:
    """``parts`` with their style sheet, as one piece of HTML for a page that knows nothing of Pellucid."""
    return written(element("div", element("style", Raw(style())), *parts, class_="pellucid", lang=language), language)
