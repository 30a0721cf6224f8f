"""The first lines of a drawing: what does not hold, which engine this is, and what became of it."""

from __future__ import annotations

from collections.abc import Iterator

from rich.cells import cell_len
from rich.text import Text

from pellucid.lang import say, told
from pellucid.view.letters import printable, shown
from pellucid.view.lines import flow, wrapped
from pellucid.watch.scene import Scene

BROKEN = "bold color(231) on color(160)"
ALARM = "bold color(160)"
WARNING = "bold color(166)"
VIOLATIONS_SHOWN = 3
NAME_WIDTH = 40


def head(scene: Scene, width: int, language: str) -> list[Text]:
    """Violations first, shown and never repaired; then the engine and its step; then what its watcher must know."""
    lines = list(_violations(scene, width, language))
    pieces = [Text(piece, style="bold" if i == 0 else "") for i, piece in enumerate(_about(scene, language))]
    lines += flow(pieces, width, indent=2)
    for sentence, style in _remarks(scene):
        lines += [Text(line, style=style) for line in wrapped(printable(told(sentence, language)), width)]
    return lines


def _violations(scene: Scene, width: int, language: str) -> Iterator[Text]:
    badge = f" {told(say('BROKEN'), language)} "
    indent = cell_len(badge) + 1
    for violation in scene.violations[:VIOLATIONS_SHOWN]:
        for i, line in enumerate(wrapped(printable(violation), width - indent)):
            head = Text.assemble((badge, BROKEN), " ") if i == 0 else Text(" " * indent)
            yield head.append(line, style=ALARM)
    if (more := len(scene.violations) - VIOLATIONS_SHOWN) > 0:
        yield Text(told(say("and {n:,} more that do not hold", n=more), language), style=ALARM)


def _about(scene: Scene, language: str) -> Iterator[str]:
    """The pieces of the line that says which engine this is and where it stands."""
    if watched := scene.watched:
        yield shown(watched.engine, NAME_WIDTH)
        yield shown(watched.model, NAME_WIDTH)
        yield told(say("process {pid}", pid=watched.pid), language)
        yield told(say("rank {rank}", rank=watched.rank), language)
    else:
        yield told(say("a saved journal"), language)
    yield told(say("step {step:,}", step=scene.snapshot.step), language)
    if scene.rate is not None:
        yield told(say("{rate:,.1f} steps/s", rate=scene.rate), language)


def _remarks(scene: Scene) -> Iterator[tuple[str, str]]:
    if scene.dropped:
        yield (
            say("dropped: {n:,} steps that this watcher was too slow for; the picture is whole again", n=scene.dropped),
            WARNING,
        )
    if scene.ended is not None:
        yield say("nothing more comes: {reason}", reason=scene.ended), WARNING
    for note in scene.notes:
        yield note, WARNING
    for sentence in scene.watched.unobservable if scene.watched else ():
        yield say("not observable: {what}", what=sentence), "dim"
