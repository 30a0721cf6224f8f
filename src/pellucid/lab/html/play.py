"""One scenario of the page: its timeline, the slider, and the moment that the slider stands at."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from pellucid.lab.html.timeline import Patch, Timeline, data
from pellucid.lang import say
from pellucid.view.html import Cell, Element, Json, Node, Totals, block_map, element, legend, tables, totals
from pellucid.view.html.totals import sentence

MOST_LETTERS = 300
MOST_CRISP = 400
"""Rows that are at least a pixel high; thinner ones would vanish if they were not blended."""


def later(name: str) -> str:
    """The place of a value that report.js puts in."""
    return f"{{{name}}}"


WORDS = {
    "step": say("Step {step} of {last}", step=later("step"), last=later("last")),
    "added": say("added: {names}", names=later("names")),
    "aborted": say("ended early: {names}", names=later("names")),
    "block": say("block {block}: {meaning}", block=later("block"), meaning=later("meaning")),
    "totals": sentence(**{name: later(name) for name in Totals._fields}),
    "play": say("Play"),
    "pause": say("Pause"),
}
"""What report.js says, with the places of its values left open."""


def anchor(name: str) -> str:
    """The id of the section of scenario ``name``."""
    return "play-" + "-".join(name.split())


def play_section(name: str, about: str, timeline: Timeline) -> Element:
    """The scenario ``name`` at the moment of its peak."""
    at = timeline.peak
    return element(
        "section",
        element("h3", about),
        *_cut(timeline),
        legend((cell for column in timeline.blocks_drawn for cell in column), timeline.letters),
        _drawing(name, timeline, at),
        _controls(name, timeline, at),
        _picture(timeline, at),
        element("script", Json(data(timeline)), type="application/json"),
        class_="play",
        id=anchor(name),
        data_at=at,
    )


def _picture(timeline: Timeline, at: int) -> Element:
    """The moment in full. Its table is there even when it is empty, for the script to fill."""
    snapshot, letters = timeline.frames[at].snapshot, timeline.letters
    parts = block_map(snapshot, letters), tables(snapshot, letters), totals(snapshot)
    return element("div", *parts, class_="picture")


def words() -> Element:
    """The words of report.js, for all timelines of the page."""
    return element("script", Json(WORDS), type="application/json", id="words")


def _cut(timeline: Timeline) -> Iterator[Node]:
    if timeline.stride > 1:
        text = say(
            "This run has {all:,} moments of {blocks:,} blocks each: one in {stride:,} is shown, {shown:,} in all.",
            all=timeline.all_moments,
            blocks=timeline.blocks,
            stride=timeline.stride,
            shown=len(timeline.frames),
        )
        yield element("p", text, class_="note")


def _drawing(name: str, timeline: Timeline, at: int) -> Element:
    """The plot between its scales, and the slider below it, moment under moment."""
    first, last = (timeline.frames[i].step for i in (0, -1))
    slider: dict[str, Any] = {"type": "range", "min": 0, "max": len(timeline.frames) - 1, "value": at}
    return element(
        "div",
        _scale("y", "0", say("block"), f"{timeline.blocks - 1}"),
        _plot(timeline),
        element("input", **slider, id=f"{anchor(name)}-slider", aria_label=say("moment of the timeline")),
        _scale("x", f"{first}", say("step"), f"{last}"),
        class_="timeline",
        style=f"--columns:{len(timeline.columns)};--rows:{len(timeline.columns[0])};--at:{at}",
    )


def _scale(axis: str, *marks: str) -> Element:
    return element("div", *(element("span", mark) for mark in marks), class_=axis)


def _plot(timeline: Timeline) -> Element:
    """Steps from left to right, blocks from top to bottom; a path for every look, a letter where there is room."""
    columns, rows = len(timeline.columns), len(timeline.columns[0])
    patches = [patch for patch in timeline.patches() if patch.cell.kind != "free"]
    looks: dict[Cell, list[Patch]] = {}
    for patch in patches:
        looks.setdefault(patch.cell, []).append(patch)
    label = say(
        "Who holds which of {blocks:,} blocks in each of {moments:,} moments; the slider shows a moment in full.",
        blocks=timeline.blocks, moments=columns,
    )  # fmt: skip
    drawing = element(
        "svg",
        *(_path(cell, group) for cell, group in looks.items()),
        viewBox=f"0 0 {columns} {rows}",
        preserveAspectRatio="none",
        shape_rendering="crispEdges" if rows <= MOST_CRISP else None,
        role="img",
        aria_label=label,
    )
    letters = element("div", *_letters(patches, columns, rows), class_="letters", aria_hidden="true")
    return element("div", drawing, letters, element("div", class_="cursor"), class_="plot")


def _path(cell: Cell, patches: Iterable[Patch]) -> Element:
    pieces = (f"M{patch.start} {patch.first}H{patch.end}V{patch.last + 1}H{patch.start}z" for patch in patches)
    return element("path", element("title", cell.meaning), class_=cell.kind, d="".join(pieces))


def _letters(patches: list[Patch], columns: int, rows: int) -> Iterator[Element]:
    """A letter in the largest patches; the style sheet hides those that are too small for theirs."""
    largest = sorted(patches, key=lambda patch: (patch.start - patch.end) * (patch.last - patch.first + 1))
    for patch in largest[:MOST_LETTERS]:
        box = {
            "left": patch.start / columns,
            "top": patch.first / rows,
            "width": (patch.end - patch.start) / columns,
            "height": (patch.last - patch.first + 1) / rows,
        }
        style = ";".join(f"{side}:{share:.3%}" for side, share in box.items())
        yield element("span", element("b", patch.cell.character), class_=f"on-{patch.cell.kind}", style=style)


def _controls(name: str, timeline: Timeline, at: int) -> Element:
    """Buttons, and the moment in words."""
    return element(
        "div",
        element(
            "div",
            element("button", "‹", type="button", class_="back", aria_label=say("one step back")),
            element("button", say("Play"), type="button", class_="run"),
            element("button", "›", type="button", class_="on", aria_label=say("one step on")),
            class_="buttons",
        ),
        element("output", _moment(timeline, at), for_=f"{anchor(name)}-slider"),
        class_="controls",
    )


def _moment(timeline: Timeline, at: int) -> str:
    return say("Step {step} of {last}", step=timeline.frames[at].step, last=timeline.frames[-1].step)
