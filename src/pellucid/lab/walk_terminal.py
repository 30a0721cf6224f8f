"""A walk as a person reads it: 80 columns, coloured on a terminal, bare text in a pipe."""

from __future__ import annotations

from collections.abc import Iterator

from rich.cells import cell_len
from rich.text import Text

from pellucid.kv.snapshot import Snapshot
from pellucid.lab.page import Page
from pellucid.lab.situations import SITUATIONS
from pellucid.lab.terminal import program
from pellucid.lab.walk import Stride, Walk
from pellucid.lang import say
from pellucid.view import Letters, block_map, legend, strips
from pellucid.view.act_lines import act_lines
from pellucid.view.lines import padded

TITLE = "bold"
CHANGED = "^"
LABEL = 8


def opening(walk: Walk, page: Page) -> Iterator[Text]:
    """What the walk is about, and in what pool."""
    about, pool = walk.about, walk.pool
    yield from page.paragraph(say("{name}: {title}", name=walk.situation.name, title=walk.situation.title), TITLE)
    yield Text()
    yield from _paragraph(walk.situation.watch, page, label=say("watch"))
    yield Text()
    facts = say(
        "{model} in {dtype}; {usable} usable blocks of {size} tokens, block 0 reserved; at most {budget} tokens a "
        "step; {caching}; re-use {policy}.",
        model=about.model,
        dtype=about.dtype,
        usable=pool.usable,
        size=pool.block_size,
        budget=about.max_num_batched_tokens,
        caching=say("prefix caching on") if about.prefix_caching else say("prefix caching off"),
        policy=pool.reuse_policy,
    )
    yield from _paragraph(facts, page, label=say("engine"))


def stride_lines(stride: Stride, letters: Letters, page: Page) -> Iterator[Text]:
    """One step: what was decided and why, the map before and after, the tables, the journal."""
    title = page.told(say("-- step {n} ", n=stride.step))
    yield Text(title + "-" * (page.width - cell_len(title)), style=TITLE)
    told = stride.told
    for heading, sentences in (
        (say("comes"), told.arrives),
        (say("plan"), told.plan),
        (say("result"), told.result),
    ):
        for i, sentence in enumerate(sentences):
            yield from _paragraph(sentence, page, label=heading if i == 0 else "")
    for violation in stride.violations:
        yield from _paragraph(violation, page, "bold color(160)", label=say("BROKEN"))
    yield Text()
    yield from _maps(stride.before, stride.after, letters, page)
    if stride.after.requests:
        yield Text()
        yield from strips(stride.after, letters, page.width, page.language)
    yield Text()
    yield Text("  " + page.told(say("journal")), style="dim")
    for number, act in enumerate(stride.acts, start=stride.before.acts + 1):
        yield from act_lines(number, act, page.width)


def ending(walk: Walk, page: Page) -> Iterator[Text]:
    """What was seen, and what to type next."""
    seen = walk.situation.seen(walk)
    sentence = seen.sentence if seen.arose else say("Not this time: {what}", what=seen.sentence)
    yield from _paragraph(sentence, page, "bold", label=say("seen"))
    broken = sum(len(stride.violations) for stride in walk.strides)
    steps = say(
        "{steps} steps, {acts} acts; {invariants}",
        steps=len(walk.strides),
        acts=walk.strides[-1].after.acts,
        invariants=say("{n} violations of an invariant: please report them.", n=broken)
        if broken
        else say("no invariant was broken."),
    )
    yield from _paragraph(steps, page, label=say("checked"))
    yield from _paragraph(f"{program()} {_next(walk.situation.name)}", page, label=say("next"))


def _paragraph(text: str, page: Page, style: str = "", *, label: str = "") -> Iterator[Text]:
    """``text`` behind a column for ``label``."""
    head = padded(page.told(label), LABEL)
    for i, line in enumerate(page.paragraph(text, style, indent=LABEL)):
        yield Text.assemble((head, "dim"), line[LABEL:]) if i == 0 else line


def _next(name: str) -> str:
    names = list(SITUATIONS)
    return f"step {names[names.index(name) + 1]}" if name != names[-1] else "prove --model tiny"


def _maps(before: Snapshot, after: Snapshot, letters: Letters, page: Page) -> Iterator[Text]:
    """Both maps row by row under one ruler, and a mark under every block that looks different."""
    width, language = page.width - LABEL, page.language
    old, new = (block_map(snapshot, letters, width, language) for snapshot in (before, after))
    rows = next(i for i, line in enumerate(new) if line.plain.lstrip().startswith("0")) + 1
    yield from (Text(" " * LABEL).append_text(line) for line in new[:rows])
    for was, now in zip(old[rows:], new[rows:], strict=True):
        yield Text.assemble((padded(page.told(say("before")), LABEL), "dim"), was)
        yield Text.assemble((padded(page.told(say("after")), LABEL), "dim"), now)
        changes = "".join(CHANGED if a != b else " " for a, b in zip(was.plain, now.plain, strict=True)).rstrip()
        if changes:
            yield Text(" " * LABEL + changes, style="bold")
    yield from legend((before, after), letters, page.width, language)
