"""The catalogue fits today's source, the published table is of this catalogue, and (slow) every mutant is caught."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
import run_mutants
import trials_table
from catalogue import MUTANTS, PACKAGE, CatalogueError, Mutant
from trials import Trial, trial, trials

NUMBERED = list(enumerate(MUTANTS, start=1))
KV = "pool policy freelist manager table identity prefix ledger journal fold trail invariants explain snapshot"
ENGINE = "scheduler sequence draft queue core"


@pytest.mark.parametrize(("number", "mutant"), NUMBERED, ids=[f"{n}-{m.file}" for n, m in NUMBERED])
def test_a_mutant_changes_exactly_one_line_of_todays_source(number: int, mutant: Mutant) -> None:
    lines = (PACKAGE / mutant.file).read_text().splitlines()
    row = mutant.locate()
    assert mutant.line != mutant.mutated
    indent = lines[row][: -len(mutant.line)]
    lines[row] = f"{indent}{mutant.mutated}"
    ast.parse("\n".join(lines))


def test_there_are_enough_of_them_and_in_every_file() -> None:
    alive = [mutant for mutant in MUTANTS if mutant.equivalent is None]
    assert len(alive) >= 40
    assert {mutant.file for mutant in alive} >= {f"kv/{name}.py" for name in KV.split()}
    assert {mutant.file for mutant in alive} >= {f"engine/{name}.py" for name in ENGINE.split()}
    assert len({(mutant.file, mutant.inside, mutant.line, mutant.mutated) for mutant in MUTANTS}) == len(MUTANTS)


def published() -> tuple[str, str]:
    """The part of the page that is about tests, and the one that is about claims."""
    tests, heading, claims = run_mutants.TABLE.read_text().partition(trials_table.HEADING)
    return tests, heading + claims


def rows(part: str) -> list[str]:
    return [line for line in part.splitlines() if line[:3].strip("| ").isdigit()]


def test_the_published_table_is_of_this_catalogue() -> None:
    found = rows(published()[0])
    heads = [run_mutants.row_head(number, mutant) for number, mutant in NUMBERED]
    assert len(found) == len(heads)
    for row, head in zip(found, heads, strict=True):
        assert row.startswith(head), "run tests/mutants/run_mutants.py, which writes docs/mutants.md"
        assert "survived" not in row


def test_what_the_claims_see_is_of_this_catalogue() -> None:
    found = rows(published()[1])
    heads = [trials_table.row_head(number, mutant) for number, mutant in NUMBERED]
    assert len(found) == len(heads)
    for row, head in zip(found, heads, strict=True):
        assert row.startswith(head), "run tests/mutants/run_mutants.py --claims, which writes docs/mutants.md"


def test_a_trial_runs_the_mutant_and_not_what_is_installed() -> None:
    uncounted = next(mutant for mutant in MUTANTS if mutant.line == "self.taken += count")
    assert trial(None) == Trial()
    assert trial(uncounted).refuted == ("accounting", "journal")


def test_a_line_that_is_gone_or_stands_twice_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("def f():\n    return 1\n\ndef g():\n    return 1\n")
    with pytest.raises(CatalogueError, match=r"^2 lines of a\.py read 'return 1'"):
        Mutant("a.py", "return 1", "return 2", "").apply(tmp_path)
    with pytest.raises(CatalogueError, match=r"^0 lines of a\.py, g read 'return 3'"):
        Mutant("a.py", "return 3", "return 2", "", inside="g").apply(tmp_path)
    with pytest.raises(CatalogueError, match="0 functions are named 'h'"):
        Mutant("a.py", "return 1", "return 2", "", inside="h").apply(tmp_path)
    Mutant("a.py", "return 1", "return 2", "", inside="g").apply(tmp_path)
    assert (tmp_path / "a.py").read_text() == "def f():\n    return 1\n\ndef g():\n    return 2\n"


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_every_mutant_that_is_not_equivalent_is_caught() -> None:
    outcomes = list(run_mutants.judge_all(NUMBERED, jobs=2))
    wrong = [outcome for outcome in outcomes if outcome.verdict in run_mutants.WRONG]
    assert not wrong, "\n".join(f"{outcome.number} {outcome.verdict}: {outcome.mutant}" for outcome in wrong)


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_the_claims_see_what_the_page_says() -> None:
    judged = list(zip(MUTANTS, trials(MUTANTS), strict=True))
    assert trials_table.wrong(judged) == []
    assert trials_table.section(judged) == published()[1], "run tests/mutants/run_mutants.py --claims"
