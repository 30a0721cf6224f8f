"""Run the commands of the lab book again, and put what they print between their markers.

python docs/lab/refresh.py

In a page there stands

    <!-- output: pellucid prove --model tiny --claim holes -->
    <!-- end -->

and between the two, what the report says of the claims: without the lines about the engine, which name its version,
and without the ending. Addresses, which differ from run to run, are veiled. ``, parts 1-3 8-9`` behind the command
takes only those parts, counted from 1; blank lines part them.
"""

from __future__ import annotations

import argparse
import re
import shlex
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from msgspec.structs import replace
from rich.console import Console
from rich.progress import track

from pellucid.lab import command
from pellucid.lab.claims import CLAIMS, claims_named
from pellucid.lab.page import WIDTH
from pellucid.lab.pellucid_subject import PellucidLaboratory
from pellucid.lab.proof import Proof
from pellucid.lab.terminal import lines
from pellucid.lab.trial import Report, trial
from pellucid.log import only_warnings

BOOK = Path(__file__).resolve().parent
ROOT = BOOK.parents[1]
PAGES = (ROOT / "README.md", ROOT / "README.ko.md", *sorted(BOOK.rglob("*.md")))

OUTPUT = re.compile(
    r"(?P<start><!-- output: (?P<command>[^,\n]+?)(?:, parts (?P<parts>[\d -]+?))? -->\n).*?(?P<end><!-- end -->)",
    re.DOTALL,
)
ADDRESS = re.compile(r"0x[0-9a-f]+")
VEIL = "0x…"
HEADING, ENDING = 2, 2
"""So many parts of a report come before its claims, and after them."""


def refreshed(text: str) -> str:
    """``text`` of a page with what its commands print today."""

    def again(found: re.Match[str]) -> str:
        parts = printed(found["command"])
        if found["parts"]:
            parts = [parts[number - 1] for number in _numbers(found["parts"])]
        return "".join((found["start"], "```text\n", "\n\n".join(parts), "\n```\n", found["end"]))

    return OUTPUT.sub(again, text)


def _numbers(parts: str) -> Iterator[int]:
    for part in parts.split():
        first, _, last = part.partition("-")
        yield from range(int(first), int(last or first) + 1)


def printed(line: str) -> list[str]:
    """What ``line``, a ``pellucid prove`` command, says of its claims on a page of 80 columns, part by part."""
    _, _, *rest = shlex.split(line)
    parser = argparse.ArgumentParser(line)
    command.add_arguments(parser)
    arguments = parser.parse_args(rest)
    options = command.engine_options(arguments, command.OPTIONS)
    report = judged(arguments.model, tuple(options.items()), tuple(arguments.claim))
    text = "\n".join(drawn.plain for drawn in lines(report, WIDTH, arguments.lang or "en"))
    return text.split("\n\n")[HEADING:-ENDING]


@cache
def judged(model: str, options: tuple[tuple[str, object], ...], claims: tuple[str, ...]) -> Report:
    """What the trial came to, its addresses veiled."""
    with only_warnings():
        report = trial(PellucidLaboratory(model, **dict(options)), claims_named(claims) if claims else CLAIMS)
    return replace(report, claims=tuple(map(_veiled, report.claims)))


def _veiled(proof: Proof) -> Proof:
    """Before the columns are drawn: an address has not as many digits everywhere."""

    def veiled(cell: str) -> str:
        return VEIL if ADDRESS.fullmatch(cell) else cell

    tables = (replace(table, rows=tuple(tuple(map(veiled, row)) for row in table.rows)) for table in proof.tables)
    return replace(proof, tables=tuple(tables))


def main() -> None:
    console = Console(stderr=True)
    for page in track(PAGES, "pages", console=console, disable=not console.is_terminal):
        before = page.read_text(encoding="utf-8")
        after = refreshed(before)
        if after != before:
            page.write_text(after, encoding="utf-8")
            print(page.relative_to(ROOT))


if __name__ == "__main__":
    main()
