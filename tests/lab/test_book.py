"""The lab book is whole, in both languages, and what it shows is what the commands print."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from types import ModuleType

import pytest

from lab.matrix import FAULTS
from pellucid.lab.claim import Claim
from pellucid.lab.claims import CLAIMS, NUMBERS
from pellucid.lang import told

BOOK = Path(__file__).parents[2] / "docs" / "lab"
FOLDERS = {"en": BOOK, "ko": BOOK / "ko"}
CHAPTERS = [(claim, language) for claim in CLAIMS for language in FOLDERS]


def _refresh() -> ModuleType:
    """``docs/lab/refresh.py``, which is in no package."""
    spec = importlib.util.spec_from_file_location("refresh", BOOK / "refresh.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


REFRESH = _refresh()


def read(page: Path) -> str:
    return page.read_text(encoding="utf-8")


@pytest.mark.parametrize("page", REFRESH.PAGES, ids=lambda page: str(page.relative_to(REFRESH.ROOT)))
def test_the_output_is_what_the_command_prints_today(page: Path) -> None:
    assert REFRESH.refreshed(read(page)) == read(page), "python docs/lab/refresh.py writes it anew"


def test_what_was_altered_is_put_right() -> None:
    page = read(BOOK / "holes.md")
    for wrong in (
        page.replace("NEW took 27 blocks", "NEW took 26 blocks"),
        re.sub(r"```text.*?```\n", "", page, flags=re.DOTALL),
    ):
        assert wrong != page
        assert REFRESH.refreshed(wrong) == page


@pytest.mark.parametrize(("claim", "language"), CHAPTERS, ids=lambda value: getattr(value, "id", value))
def test_a_chapter_is_about_its_claim(claim: Claim, language: str) -> None:
    text = read(FOLDERS[language] / f"{claim.id}.md")
    command = f"pellucid prove --model tiny --claim {claim.id}" + (" --lang ko" if language == "ko" else "")
    assert text.startswith(f"# {NUMBERS[claim.id]}. {told(claim.title, language)}\n")
    assert f"```console\n$ {command}\n```\n\n<!-- output: {command} -->" in text
    assert claim.judge.__module__.replace(".", "/") + ".py" in text


@pytest.mark.parametrize(("claim", "language"), CHAPTERS, ids=lambda value: getattr(value, "id", value))
def test_the_faults_it_names_are_aimed_at_the_claim(claim: Claim, language: str) -> None:
    named = re.findall(r"\*\*(.+?)\*\*", read(FOLDERS[language] / f"{claim.id}.md"))
    assert len(named) >= 2
    assert set(named) <= {fault.name for fault in FAULTS if claim.id in fault.refutes}


@pytest.mark.parametrize("language", FOLDERS)
def test_the_index_lists_the_claims_in_their_order(language: str) -> None:
    rows = re.findall(r"^\| (\d+) \| \[(.+?)\]\((.+?)\.md\) \|", read(FOLDERS[language] / "README.md"), flags=re.M)
    assert rows == [(str(NUMBERS[claim.id]), told(claim.title, language), claim.id) for claim in CLAIMS]
    assert {page.stem for page in FOLDERS[language].glob("*.md")} == {*NUMBERS, "README"}


@pytest.mark.parametrize("page", sorted(BOOK.rglob("*.md")), ids=lambda page: str(page.relative_to(BOOK)))
def test_every_file_it_links_to_is_there(page: Path) -> None:
    for target, heading in re.findall(r"\]\((?!https?:)([^)#]*)#?([^)]*)\)", read(page)):
        assert (page.parent / target).is_file(), target
        headings = [
            line.lstrip("# ").lower().replace(" ", "-")
            for line in read(page.parent / target).splitlines()
            if line.startswith("#")
        ]
        assert not heading or heading in headings, (target, heading)
