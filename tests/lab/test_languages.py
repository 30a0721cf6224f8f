"""Reports in every language: the same numbers, names and evidence, other sentences, and lines that fit."""

from __future__ import annotations

import argparse
import io
import json
import re
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from rich.cells import cell_len

from lab import faults
from lab.test_report import broken
from pellucid.errors import ConfigError
from pellucid.kv.policy import REUSE_POLICIES
from pellucid.lab import command, soak_command, walk_command
from pellucid.lab.page import Page
from pellucid.lab.pellucid_subject import PellucidLaboratory
from pellucid.lab.situations import SITUATIONS
from pellucid.lab.terminal import lines
from pellucid.lab.trial import Plays, report
from pellucid.lab.walk import Walk
from pellucid.lab.walk_terminal import ending, opening, stride_lines
from pellucid.lang import LANGUAGES, encoded
from pellucid.model import LoadedModel
from pellucid.view import Letters, picture

OTHERS = [language for language in LANGUAGES if language != "en"]
SENTENCES = {"title", "sentence", "reason", "scope", "facts", "tables", "told"}
"""Fields in which there are sentences; whatever is in any other is the same in every language."""

TERMS = """
    PagedAttention pellucid prove step soak run SCRIPT FILE model tiny block size json html float32 cpu vLLM KV MiB
    token max_model_len ceil free first dtype length
    alice bob carol NEW
    flood old young small chat talk essay
"""
"""Names, flags and identifiers that are the same in every language."""


def parsed(module: Any, *arguments: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    module.add_arguments(parser)
    return parser.parse_args(arguments)


def empty(plays: Plays) -> Plays:
    """A trial in which no scenario but the first could be played."""
    other = Plays()
    other.recordings = {"holes": faults.another_token(plays.recordings["holes"], "NEW")}
    return other


def differences(one: Any, other: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], str, str]]:
    """Where two JSON values differ; they must be of one shape."""
    if isinstance(one, dict):
        assert one.keys() == other.keys()
        for key in one:
            yield from differences(one[key], other[key], (*path, key))
    elif isinstance(one, list):
        assert len(one) == len(other)
        for mine, theirs in zip(one, other, strict=True):
            yield from differences(mine, theirs, path)
    elif one != other:
        assert isinstance(one, str), (path, one, other)
        yield path, one, other


def digits(text: str) -> Counter[str]:
    return Counter(re.findall(r"\d", text))


@pytest.mark.parametrize("language", OTHERS)
@pytest.mark.parametrize("trial", [lambda plays: plays, broken, empty])
def test_a_report_differs_in_its_sentences_only(plays: Plays, trial: Callable[[Plays], Plays], language: str) -> None:
    original = report(trial(plays))
    english, other = (json.loads(encoded(original, each)) for each in ("en", language))
    found = list(differences(english, other))
    assert len(found) > 5 * len(original.claims) / 2
    for path, mine, theirs in found:
        assert SENTENCES & set(path), (path, mine)
        assert not {"evidence", "snapshot"} & set(path), (path, mine)
        assert digits(mine) == digits(theirs), (mine, theirs)


@pytest.mark.parametrize("language", OTHERS)
@pytest.mark.parametrize("name", SITUATIONS)
def test_a_walk_differs_in_its_sentences_only(tiny: LoadedModel, name: str, language: str) -> None:
    for stride in Walk(SITUATIONS[name], PellucidLaboratory(tiny, **SITUATIONS[name].options)):
        english, other = (json.loads(encoded(stride, each)) for each in ("en", language))
        found = list(differences(english, other))
        assert len(found) == sum(map(len, english["told"].values()))
        for path, mine, theirs in found:
            assert path[0] == "told"
            assert digits(mine) == digits(theirs), (mine, theirs)


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize("width", [40, 57, 80])
def test_no_line_of_a_report_is_wider_than_the_page(plays: Plays, width: int, language: str) -> None:
    for result in map(report, (plays, broken(plays), empty(plays))):
        wide = [line.plain for line in lines(result, width, language) if line.cell_len > width]
        assert not wide


def test_a_long_way_to_the_program_fits(plays: Plays, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.which", lambda name: None)
    monkeypatch.setattr("sys.argv", ["/opt/a-long-way/to/the-folder-of-all/projects/pellucid/.venv/bin/pellucid"])
    for width in (40, 80):
        assert max(line.cell_len for line in lines(report(plays), width)) <= width


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize("width", [40, 80])
@pytest.mark.parametrize("name", SITUATIONS)
def test_no_line_of_a_walk_is_wider_than_the_page(tiny: LoadedModel, name: str, width: int, language: str) -> None:
    page, letters = Page(width, language), Letters()
    walk = Walk(SITUATIONS[name], PellucidLaboratory(tiny, **SITUATIONS[name].options))
    drawn = [*opening(walk, page)]
    for stride in walk:
        drawn += stride_lines(stride, letters, page)
        drawn += picture(stride.after, letters, width, language)
    drawn += ending(walk, page)
    assert not [line.plain for line in drawn if line.cell_len > width]


@pytest.mark.parametrize("language", LANGUAGES)
def test_columns_stand_under_their_heading(plays: Plays, language: str) -> None:
    """Every row of the same strip or table ends its numbers in the same cell."""
    text = [line.plain for line in lines(report(plays), 80, language)]
    strip = [line for line in text if re.match(r"  [A-Z] .*\d+ +\d+ +\d+  \d", line)]
    named = [line for line in strip if line.startswith(("  A R0", "  C R2", "  D NEW"))]
    ends = {tuple(cell_len(line[: found.end()]) for found in re.finditer(r" \d+(?= |$)", line))[:4] for line in named}
    assert len(named) >= 3
    assert len({end[1:4] for end in ends}) == 1
    table = [line for line in text if re.match(r"  (short|medium|long|one less|exact|one more)\s+\d", line)]
    assert len(table) == 6
    assert len(set(map(cell_len, table))) == 1


def leftovers(text: str) -> set[str]:
    """English words that are no terms; on the map there are capitals, and names after a letter of their own."""
    return {word for word in re.findall(r"[A-Za-z_]{2,}[0-9]*", text) if not word.isupper()} - set(TERMS.split())


def names_in(plays: Plays) -> set[str]:
    """What scenarios, their requests, salts, acts and policies are called: the same in every language."""
    names = {*plays.recordings, *REUSE_POLICIES}
    for run in plays.recordings.values():
        names |= {*run.requests, *(asked.salt or "" for asked in run.requests.values())}
        names |= {type(act).__name__.lower() for act in run.acts or ()}
    return {word for name in names for word in re.findall(r"[A-Za-z_]+[0-9]*", name)}


@pytest.mark.parametrize("language", OTHERS)
def test_no_english_is_left_over_in_what_prove_prints(
    language: str, plays: Plays, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command.main(parsed(command, "--model", "tiny", "--lang", language)) == 0
    out = re.sub(r"0x[0-9a-f]+", "", capsys.readouterr().out)
    assert not leftovers(out) - names_in(plays)


@pytest.mark.parametrize("language", OTHERS)
@pytest.mark.parametrize("name", SITUATIONS)
def test_no_english_is_left_over_in_a_walk(name: str, language: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert walk_command.main(parsed(walk_command, name, "--script", "--lang", language)) == 0
    out = capsys.readouterr().out
    journal = {"ko": "저널", "zh": "日志"}[language]
    told = re.sub(rf"(?m)^  {journal}\n(.+\n)*", "", out)
    assert told != out
    assert leftovers(told) <= {"hole", "sharing", "revival", "pressure", "chunked"}


def test_the_environment_chooses_for_a_reader_and_not_for_a_program(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("LC_ALL", "ko_KR.UTF-8")
    titles = []
    for arguments in (["--script"], ["--json"], ["--json", "--lang", "zh"], ["--script", "--lang", "en"]):
        walk_command.main(parsed(walk_command, "hole", *arguments))
        titles.append(capsys.readouterr().out.splitlines()[0])
    assert titles[0] == "hole: 구멍을 다시 쓰기"
    assert "R0 arrives with a prompt of 25 tokens" in titles[1]
    assert "R0 到达" in titles[2]
    assert titles[3] == "hole: a hole is re-used"


def test_letters_that_stdout_cannot_write(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdout", io.TextIOWrapper(io.BytesIO(), encoding="latin-1"))
    monkeypatch.setenv("LC_ALL", "ko_KR.ISO-8859-1")
    assert command.language(parsed(command)) == "en"
    with pytest.raises(ConfigError, match="stdout is written in latin-1"):
        command.language(parsed(command, "--lang", "zh"))


@pytest.mark.parametrize(
    ("language", "words"), [("ko", "잘못된 것이 없습니다"), ("zh", "一切正常"), ("en", "Nothing is")]
)
def test_a_soak_is_told_in_a_language(language: str, words: str, capsys: pytest.CaptureFixture[str]) -> None:
    options = ("--model", "none", "--rounds", "2", "--lang", language)
    assert soak_command.main(parsed(soak_command, *options)) == 0
    out = capsys.readouterr().out.splitlines()
    assert words in out[-1]
    counted = [line for line in out if re.match(r"  .* [\d,]+$", line)]
    assert len(counted) == len(soak_command.COUNTED)
    assert len(set(map(cell_len, counted))) == 1


def test_a_walk_at_a_terminal_asks_in_the_language(tiny: LoadedModel) -> None:
    out = io.StringIO()
    walk = Walk(SITUATIONS["hole"], PellucidLaboratory(tiny, **SITUATIONS["hole"].options))
    walk_command.show(walk, out, io.StringIO("q\n"), "zh")
    assert out.getvalue().endswith("Enter：下一步   q：退出 ")
