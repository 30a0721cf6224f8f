"""Apply the mutants one at a time, see which test notices, and publish the table.

    python tests/mutants/run_mutants.py                  all of them; writes docs/mutants.md
    python tests/mutants/run_mutants.py scheduler 17     those of engine/scheduler.py, and number 17; writes nothing
    python tests/mutants/run_mutants.py --claims         what the claims see; writes that part of docs/mutants.md

A mutant is caught by the first test that fails, or that takes longer than the limit (a mutant may loop for ever).
The last line is one JSON object. The exit status is 0 if every mutant that is not equivalent is caught, and no
equivalent one is; with --claims, if no equivalent one is seen.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

import suite
from catalogue import MUTANTS, Mutant
from copies import package_with
from rich.console import Console
from rich.progress import Progress
from trials import trials
from trials_table import HEADING, Judged, section, wrong
from trials_table import count as count_seen

SUITE = Path(suite.__file__)
ROOT = SUITE.parents[2]
TABLE = ROOT / "docs" / "mutants.md"


class Verdict(StrEnum):
    CAUGHT = "caught"
    TIMED_OUT = "caught by the time limit"
    SURVIVED = "survived"
    EQUIVALENT = "equivalent"
    NOT_EQUIVALENT = "called equivalent, and yet caught"


STATUS = {0: Verdict.SURVIVED, 1: Verdict.CAUGHT, -signal.SIGALRM: Verdict.TIMED_OUT}
WRONG = (Verdict.SURVIVED, Verdict.NOT_EQUIVALENT)


@dataclass(frozen=True)
class Outcome:
    """What became of mutant ``number``; ``test`` is the one that caught it or was running when time was up."""

    number: int
    mutant: Mutant
    verdict: Verdict
    test: str


class SuiteError(Exception):
    """The tests could not tell anything: they fail without a mutant, or do not even start with one."""


def run_suite(mutant: Mutant | None) -> tuple[int, str]:
    """The suite's exit status on a fresh copy of the package, and the last test that it named."""
    with package_with(mutant) as package:
        log = package.parent / "log"
        environment = {**os.environ, "PYTHONPATH": str(package.parent), "PELLUCID_TEST_DEPTH": "1"}
        command = [sys.executable, str(SUITE), str(package), str(log), Path(mutant.file).stem if mutant else ""]
        done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
        last = _last(log)
        if done.returncode not in STATUS or (done.returncode == 1 and not last.startswith(suite.FAILED)):
            raise SuiteError(f"the tests do not run with {mutant}:\n{done.stdout[-3000:]}{done.stderr[-3000:]}")
        return done.returncode, last.removeprefix(suite.FAILED).removeprefix("tests/")


def _last(log: Path) -> str:
    lines = log.read_text().splitlines() if log.exists() else []
    return lines[-1] if lines else ""


def judge(number: int, mutant: Mutant) -> Outcome:
    status, test = run_suite(mutant)
    if mutant.equivalent:
        return Outcome(number, mutant, Verdict.NOT_EQUIVALENT if status != 0 else Verdict.EQUIVALENT, test)
    verdict = STATUS[status]
    return Outcome(number, mutant, verdict, "" if verdict is Verdict.SURVIVED else test)


def judge_all(chosen: list[tuple[int, Mutant]], jobs: int) -> Iterator[Outcome]:
    """Raises `CatalogueError` for a mutant that does not fit, `SuiteError` if the tests fail without any."""
    for _, mutant in chosen:
        mutant.locate()
    status, test = run_suite(None)
    if status != 0:
        raise SuiteError(f"without any mutant, {test} fails or takes too long.")
    with ThreadPoolExecutor(jobs) as pool:
        yield from pool.map(lambda numbered: judge(*numbered), chosen)


def choose(words: list[str]) -> list[tuple[int, Mutant]]:
    numbered = list(enumerate(MUTANTS, start=1))
    if not words:
        return numbered
    return [(n, mutant) for n, mutant in numbered if str(n) in words or Path(mutant.file).stem in words]


def count(outcomes: list[Outcome]) -> dict[str, int]:
    verdicts = Counter(outcome.verdict for outcome in outcomes)
    return {
        "mutants": len(outcomes),
        "caught": verdicts[Verdict.CAUGHT] + verdicts[Verdict.TIMED_OUT],
        "of_them_by_time": verdicts[Verdict.TIMED_OUT],
        "survived": verdicts[Verdict.SURVIVED],
        "equivalent": verdicts[Verdict.EQUIVALENT],
        "wrongly_called_equivalent": verdicts[Verdict.NOT_EQUIVALENT],
    }


# -- the table ---------------------------------------------------------------------------------------


def code(text: str) -> str:
    """Inline code that survives in a table cell."""
    return f"`{text.replace('|', chr(92) + '|')}`"


def row_head(number: int, mutant: Mutant) -> str:
    """The cells of a mutant that do not depend on a run."""
    change = f"{code(mutant.line)}<br>→ {code(mutant.mutated)}"
    return f"| {number} | {mutant.file}<br>{code(mutant.place())} | {change} | {mutant.breaks} |"


def row(outcome: Outcome) -> str:
    match outcome.verdict:
        case Verdict.CAUGHT:
            end = code(outcome.test)
        case Verdict.EQUIVALENT:
            end = f"equivalent: {outcome.mutant.equivalent}"
        case Verdict.SURVIVED:
            end = "**survived**"
        case _:
            end = f"{outcome.verdict}: {code(outcome.test)}"
    return f"{row_head(outcome.number, outcome.mutant)} {end} |"


def document(outcomes: list[Outcome]) -> str:
    counts = count(outcomes)
    by_time = f", {counts['of_them_by_time']} of them by the time limit" if counts["of_them_by_time"] else ""
    head = f"""# Mutants

Each row is one line of the block accounting or the scheduler, changed into a bug that somebody could have written.
One at a time they are put into a copy of the package and the fast tests that need no model are run against it. A test
that fails has caught the mutant; a mutant that nobody catches would be a bug that nobody would notice.
What the claims of `pellucid prove` alone see of them stands [below](#what-the-claims-see).

**{counts["mutants"]} mutants: {counts["caught"]} caught{by_time}, {counts["survived"]} survived, \
{counts["equivalent"]} equivalent**
(no test could ever tell the difference; the table says why).

This page is generated: `python tests/mutants/run_mutants.py` runs them all (minutes) and writes it,
`python tests/mutants/run_mutants.py scheduler 17` runs those of `scheduler.py` and number 17 and only prints. The list
is `tests/mutants/catalogue.py`; `make test` checks that it fits today's source, `make test-all` that all are caught.
"Caught by" names the first test to fail; mostly it is not the only one. The tests named after the mutant's file and the
recorded vLLM runs come first, whole engines under random traffic last. A mutant that loops for ever is
caught by the test that then takes more than {suite.LIMIT_S} s.

| | where | change | what it breaks | caught by |
| --- | --- | --- | --- | --- |
"""
    return head + "\n".join(map(row, outcomes)) + "\n\n"


# -- the command -------------------------------------------------------------------------------------


def publish(*, tests: str | None = None, claims: str | None = None) -> None:
    """Write one part of the page and keep the other."""
    before, heading, after = TABLE.read_text().partition(HEADING)
    TABLE.write_text((tests or before) + (claims or heading + after))


def against_tests(chosen: list[tuple[int, Mutant]], jobs: int, whole: bool) -> int:
    began, outcomes = time.monotonic(), []
    for outcome in judge_all(chosen, jobs):
        outcomes.append(outcome)
        print(
            f"{outcome.number:4} {outcome.mutant.file}: {outcome.mutant.breaks}\n     {outcome.verdict} {outcome.test}"
        )
    if whole:
        publish(tests=document(outcomes))
    counts = count(outcomes)
    print(json.dumps({"benchmark": "mutants", **counts, "seconds": round(time.monotonic() - began)}))
    return 1 if any(outcome.verdict in WRONG for outcome in outcomes) else 0


def against_claims(chosen: list[tuple[int, Mutant]], whole: bool) -> int:
    began, judged, console = time.monotonic(), Judged(), Console(stderr=True)
    mutants = [mutant for _, mutant in chosen]
    shown = {"disable": not console.is_terminal, "redirect_stdout": sys.stdout.isatty()}
    with Progress(console=console, **shown) as progress:
        watched = progress.track(trials(mutants), len(mutants), description="mutants")
        for (number, mutant), trial in zip(chosen, watched, strict=True):
            judged.append((mutant, trial))
            what = " ".join(trial.refuted or trial.unobservable) or trial.error
            print(f"{number:4} {mutant.file}: {mutant.breaks}\n     {trial.seen} {what}")
    if whole:
        publish(claims=section(judged))
    print(json.dumps({"benchmark": "claims", **count_seen(judged), "seconds": round(time.monotonic() - began)}))
    return 1 if wrong(judged) else 0


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("which", nargs="*", help="numbers, or names of source files without .py; all by default")
    parser.add_argument("--claims", action="store_true", help="what the claims see, one mutant at a time")
    parser.add_argument("--jobs", type=int, default=min(2, os.cpu_count() or 1), help="mutants at a time")
    options = parser.parse_args(arguments)
    chosen, whole = choose(options.which), not options.which
    return against_claims(chosen, whole) if options.claims else against_tests(chosen, options.jobs, whole)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
