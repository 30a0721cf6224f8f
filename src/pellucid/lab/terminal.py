"""The report as a person reads it: 80 columns, coloured on a terminal, bare text in a pipe."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterable, Iterator
from typing import TextIO

from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from pellucid.lab.claims import NUMBERS
from pellucid.lab.page import WIDTH, Page
from pellucid.lab.proof import Exhibit, Proof, Verdict
from pellucid.lab.trial import Report
from pellucid.lab.wording import BUG, TITLE, counts, engine_facts, scope
from pellucid.lang import Sentence, say
from pellucid.view import Letters, block_map, legend, strips
from pellucid.view.lines import wrapped

INDENT = 2
STYLES = {
    Verdict.PROVED: "bold color(16) on color(77)",
    Verdict.REFUTED: "bold color(231) on color(160)",
    Verdict.NOT_OBSERVABLE: "bold color(16) on color(221)",
}


def print_report(report: Report, stream: TextIO, language: str = "en") -> None:
    """Write ``report`` to ``stream``."""
    console = Console(file=stream, highlight=False)
    page = Page.of(console, language)
    for line in lines(report, page.width, language):
        console.print(line, soft_wrap=True)


def lines(report: Report, width: int = WIDTH, language: str = "en") -> Iterator[Text]:
    """The report line by line, none longer than ``width`` cells."""
    page = Page(width, language)
    yield from _heading(report, page)
    for proof in report.claims:
        yield Text()
        yield from _proof(proof, page)
    yield Text()
    yield from _ending(report, page)


def _heading(report: Report, page: Page) -> Iterator[Text]:
    yield from page.paragraph(TITLE, "bold")
    yield Text()
    yield from page.facts(engine_facts(report), indent=INDENT)


def _proof(proof: Proof, page: Page) -> Iterator[Text]:
    badge = f" {page.told(proof.verdict.word).upper()} "
    number = f"{NUMBERS[proof.id]}. " if proof.id in NUMBERS else ""
    side = cell_len(badge) + 2
    for i, line in enumerate(wrapped(f"{number}{page.told(proof.title)}", page.width - side)):
        head = Text.assemble((badge, STYLES[proof.verdict]), "  ") if i == 0 else Text(" " * side)
        yield head.append(line, style="bold")
    yield Text()
    yield from page.paragraph(proof.sentence, indent=INDENT)
    yield from page.paragraph(proof.reason, "" if proof.verdict is Verdict.PROVED else "bold", indent=INDENT)
    if proof.scope:
        yield from page.paragraph(scope(proof), indent=INDENT)
    for table in proof.tables:
        yield Text()
        yield from page.table(table, indent=INDENT)
    if proof.facts:
        yield Text()
        yield from page.facts(proof.facts, indent=INDENT)
    yield from _exhibits(proof.exhibits, page)


def _exhibits(exhibits: Iterable[Exhibit], page: Page) -> Iterator[Text]:
    letters = Letters()
    width, language = page.width - INDENT, page.language
    for exhibit in exhibits:
        yield Text()
        yield from page.paragraph(exhibit.title, "bold", indent=INDENT)
        yield from _indented(block_map(exhibit.snapshot, letters, width, language))
        yield from _indented(legend(exhibit.snapshot, letters, width, language))
        if exhibit.snapshot.requests:
            yield Text()
            yield from _indented(strips(exhibit.snapshot, letters, width, language))


def _indented(lines: Iterable[Text]) -> Iterator[Text]:
    for line in lines:
        yield Text(" " * INDENT).append_text(line)


def _ending(report: Report, page: Page) -> Iterator[Text]:
    yield from page.paragraph(counts(report), "bold")
    if report.exit_status:
        yield from page.paragraph(BUG, indent=INDENT)
    yield Text()
    yield from page.paragraph(say("Next:"))
    further = _further_on_vllm() if report.about.engine.startswith("vllm") else _further()
    yield from page.facts([(f"{program()} {words}", what) for words, what in further], indent=INDENT)


def _further() -> Iterator[tuple[str, Sentence]]:
    yield "prove --model tiny", say("a random model, in a second")
    yield "prove --block-size 8", say("other blocks, the same claims")
    yield "prove --html FILE", say("a page on which every step can be looked at")
    yield "prove --json", say("all the evidence, for a program")
    yield "run SCRIPT", say("a script written for vLLM, unmodified")


def _further_on_vllm() -> Iterator[tuple[str, Sentence]]:
    yield "prove --engine vllm --html FILE", say("a page on which every step can be looked at")
    yield "prove --engine vllm --json", say("all the evidence, for a program")
    yield "vllm serve MODEL", say("a server whose blocks can be watched while it runs")
    yield "doctor", say("what of this vLLM can be observed")


def program() -> str:
    """How to type ``pellucid`` here: its path, unless the shell finds it by its name."""
    return "pellucid" if shutil.which("pellucid") or not sys.argv[0].endswith("/pellucid") else sys.argv[0]
