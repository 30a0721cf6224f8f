"""The report as a person reads it: 80 columns, coloured on a terminal, bare text in a pipe."""

from __future__ import annotations

import shutil
import sys
import textwrap
from collections.abc import Iterable, Iterator
from typing import TextIO

from rich.console import Console
from rich.text import Text

from pellucid.lab.proof import Exhibit, Proof, Verdict
from pellucid.lab.trial import Report
from pellucid.view import Letters, block_map, legend, strips

WIDTH = 80
NARROWEST = 40
INDENT = "  "
STYLES = {
    Verdict.PROVED: "bold color(16) on color(77)",
    Verdict.REFUTED: "bold color(231) on color(160)",
    Verdict.NOT_OBSERVABLE: "bold color(16) on color(221)",
}


def print_report(report: Report, stream: TextIO) -> None:
    """Write ``report`` to ``stream``."""
    console = Console(file=stream, highlight=False)
    width = max(NARROWEST, min(console.width, WIDTH))
    for line in lines(report, width):
        console.print(line, soft_wrap=True)


def lines(report: Report, width: int = WIDTH) -> Iterator[Text]:
    """The report line by line, none longer than ``width``."""
    yield from _heading(report, width)
    for number, proof in enumerate(report.claims, start=1):
        yield Text()
        yield from _proof(number, proof, width)
    yield Text()
    yield from _ending(report, width)


def _heading(report: Report, width: int) -> Iterator[Text]:
    about, pool = report.about, report.pool
    size = f", {pool.nbytes / 1024**2:,.1f} MiB" if pool.nbytes is not None else ""
    longest = -(-about.max_model_len // pool.block_size)
    yield Text("PagedAttention, put to the proof", style="bold")
    yield Text()
    yield from _facts(
        (
            ("engine", about.engine),
            ("model", f"{about.model}, {about.dtype} on {about.device}"),
            ("pool", f"{pool.total:,} blocks of {pool.block_size} tokens{size}"),
            ("", f"1 is reserved, {pool.usable:,} are usable: {pool.usable * pool.block_size:,} tokens"),
            ("longest request", f"{about.max_model_len:,} tokens = {longest:,} blocks"),
        ),
        width,
    )


def _proof(number: int, proof: Proof, width: int) -> Iterator[Text]:
    yield Text.assemble((f" {proof.verdict.upper()} ", STYLES[proof.verdict]), (f"  {number}. {proof.title}", "bold"))
    yield Text()
    yield from _paragraph(proof.sentence, width)
    yield from _paragraph(proof.reason, width, "" if proof.verdict is Verdict.PROVED else "bold")
    if proof.scope:
        yield from _paragraph(f"{proof.verdict.capitalize()} on this run: {proof.scope}.", width)
    if proof.facts:
        yield Text()
        yield from _facts(proof.facts, width)
    yield from _exhibits(proof.exhibits, width)


def _paragraph(text: str, width: int, style: str = "", indent: str = INDENT) -> Iterator[Text]:
    for line in textwrap.wrap(text, width - len(indent), break_on_hyphens=False):
        yield Text(indent + line, style=style)


def _facts(facts: Iterable[tuple[str, str]], width: int) -> Iterator[Text]:
    facts = list(facts)
    label = max(len(name) for name, _ in facts) + 2
    for name, value in facts:
        rest = textwrap.wrap(value, width - len(INDENT) - label, break_on_hyphens=False) or [""]
        for i, line in enumerate(rest):
            yield Text.assemble(INDENT, (f"{'' if i else name:<{label}}", "dim"), line)


def _exhibits(exhibits: Iterable[Exhibit], width: int) -> Iterator[Text]:
    letters = Letters()
    for exhibit in exhibits:
        yield Text()
        yield Text(f"{INDENT}{exhibit.title}", style="bold")
        yield from _indented(block_map(exhibit.snapshot, letters, width - len(INDENT)))
        yield from _indented(legend(exhibit.snapshot, letters, width - len(INDENT)))
        if exhibit.snapshot.requests:
            yield Text()
            yield from _indented(strips(exhibit.snapshot, letters, width - len(INDENT)))


def _indented(lines: Iterable[Text]) -> Iterator[Text]:
    for line in lines:
        yield Text(INDENT).append_text(line)


def _ending(report: Report, width: int) -> Iterator[Text]:
    counts = ", ".join(f"{count} {verdict}" for verdict, count in report.verdicts.items())
    yield from _paragraph(f"{len(report.claims)} claims: {counts}; {report.steps} steps in all.", width, "bold", "")
    if report.exit_status:
        yield from _paragraph("A refuted claim is a bug: please report it with the output of --json.", width)
    yield Text()
    yield Text("Next:")
    yield from _facts(
        (
            (f"{program()} prove --model tiny", "a random model, in a second"),
            (f"{program()} prove --block-size 8", "other blocks, the same claims"),
            (f"{program()} prove --json", "all the evidence, for a program"),
            (f"{program()} run SCRIPT", "a script written for vLLM, unmodified"),
        ),
        width,
    )


def program() -> str:
    """How to type ``pellucid`` here: its path, unless the shell finds it by its name."""
    return "pellucid" if shutil.which("pellucid") or not sys.argv[0].endswith("/pellucid") else sys.argv[0]
