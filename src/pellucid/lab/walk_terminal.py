"""A walk as a person reads it: 80 columns, coloured on a terminal, bare ASCII in a pipe."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator

from rich.text import Text

from pellucid.kv.snapshot import Snapshot
from pellucid.lab.situations import SITUATIONS
from pellucid.lab.terminal import WIDTH, program
from pellucid.lab.walk import Stride, Walk
from pellucid.view import Letters, block_map, legend, strips
from pellucid.view.act_lines import act_lines
from pellucid.view.block_map import SHARED
from pellucid.view.lines import flow

TITLE = "bold"
CHANGED = "^"
LABEL = 8


def opening(walk: Walk, width: int = WIDTH) -> Iterator[Text]:
    """What the walk is about, and in what pool."""
    about, pool = walk.about, walk.pool
    yield Text(f"{walk.situation.name}: {walk.situation.title}", style=TITLE)
    yield Text()
    yield from _paragraph(walk.situation.watch, width, label="watch")
    yield Text()
    caching = "on" if about.prefix_caching else "off"
    facts = (
        f"{about.model} in {about.dtype}; {pool.usable} usable blocks of {pool.block_size} tokens, block 0 reserved; "
        f"at most {about.max_num_batched_tokens} tokens a step; prefix caching {caching}; re-use {pool.reuse_policy}."
    )
    yield from _paragraph(facts, width, label="engine")


def stride_lines(stride: Stride, letters: Letters, width: int = WIDTH) -> Iterator[Text]:
    """One step: what was decided and why, the map before and after, the tables, the journal."""
    title = f"-- step {stride.step} "
    yield Text(title + "-" * (width - len(title)), style=TITLE)
    told = stride.told
    for heading, sentences in (("comes", told.arrives), ("plan", told.plan), ("result", told.result)):
        for i, sentence in enumerate(sentences):
            yield from _paragraph(sentence, width, label=heading if i == 0 else "")
    for violation in stride.violations:
        yield from _paragraph(violation, width, "bold color(160)", label="BROKEN")
    yield Text()
    yield from _maps(stride.before, stride.after, letters, width)
    if stride.after.requests:
        yield Text()
        yield from strips(stride.after, letters, width)
    yield Text()
    yield Text("  journal", style="dim")
    for number, act in enumerate(stride.acts, start=stride.before.acts + 1):
        yield from act_lines(number, act, width)


def ending(walk: Walk, width: int = WIDTH) -> Iterator[Text]:
    """What was seen, and what to type next."""
    seen = walk.situation.seen(walk)
    head = "" if seen.arose else "Not this time: "
    broken = sum(len(stride.violations) for stride in walk.strides)
    yield from _paragraph(head + seen.sentence, width, "bold", label="seen")
    invariants = f"{broken} violations of an invariant: please report them." if broken else "no invariant was broken."
    steps = f"{len(walk.strides)} steps, {walk.strides[-1].after.acts} acts; {invariants}"
    yield from _paragraph(steps, width, label="checked")
    yield from _paragraph(f"{program()} {_next(walk.situation.name)}", width, label="next")


def _paragraph(text: str, width: int, style: str = "", *, label: str = "") -> Iterator[Text]:
    """``text`` behind a column for ``label``."""
    for i, line in enumerate(textwrap.wrap(text, width - LABEL, break_on_hyphens=False)):
        yield Text.assemble((f"{'' if i else label:<{LABEL}}", "dim"), (line, style))


def _next(name: str) -> str:
    names = list(SITUATIONS)
    return f"step {names[names.index(name) + 1]}" if name != names[-1] else "prove --model tiny"


def _maps(before: Snapshot, after: Snapshot, letters: Letters, width: int) -> Iterator[Text]:
    """Both maps row by row under one ruler, and a mark under every block that looks different."""
    old, new = (block_map(snapshot, letters, width - LABEL) for snapshot in (before, after))
    rows = next(i for i, line in enumerate(new) if line.plain.lstrip().startswith("0")) + 1
    yield from (Text(" " * LABEL).append_text(line) for line in new[:rows])
    for was, now in zip(old[rows:], new[rows:], strict=True):
        yield Text.assemble((f"{'before':<{LABEL}}", "dim"), was)
        yield Text.assemble((f"{'after':<{LABEL}}", "dim"), now)
        changes = "".join(CHANGED if a != b else " " for a, b in zip(was.plain, now.plain, strict=True)).rstrip()
        if changes:
            yield Text(" " * LABEL + changes, style="bold")
    yield from _legend((before, after), letters, width)


def _legend(snapshots: Iterable[Snapshot], letters: Letters, width: int) -> list[Text]:
    pieces: dict[str, Text] = {}
    owners: set[str] = set()
    for snapshot in snapshots:
        for line in legend(snapshot, letters, width):
            for piece in line.split("   "):
                numbers, shared, _ = piece.plain.partition(" owners")
                if shared:
                    owners.update(numbers.split())
                else:
                    pieces[piece.plain] = piece
    if owners:
        pieces["zz"] = Text.assemble((" ".join(sorted(owners)), SHARED), " owners: shared")
    order = sorted(pieces, key=lambda plain: plain[0] if plain[0].isalpha() else "~")
    return flow((pieces[plain] for plain in order), width)
