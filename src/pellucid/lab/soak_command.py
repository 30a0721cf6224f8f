"""``pellucid soak``."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
from rich.console import Console

from pellucid.errors import ConfigError
from pellucid.log import only_warnings

if TYPE_CHECKING:
    from pellucid.lab.soak import Progress, SoakReport

EVERY_S = 10


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of ``pellucid soak``."""
    parser.add_argument("--minutes", type=float, default=1.0, metavar="N", help="how long (1)")
    parser.add_argument("--rounds", type=int, metavar="N", help="stop after so many rounds, if time is not up before")
    parser.add_argument("--seed", type=int, default=0, metavar="S", help="the same seed plays the same rounds (0)")
    parser.add_argument(
        "--model",
        default="tiny",
        help="tiny, none (no model at all: only what it would read, and the fastest), smollm2-135m, a folder, "
        "a .gguf file or a hub id (tiny)",
    )
    parser.add_argument(
        "--out", metavar="FILE", help="where a failure's case goes (pellucid-soak-SEED-ROUND.json in this folder)"
    )
    parser.add_argument("--replay", metavar="FILE", help="play the case of FILE, and nothing else")
    parser.add_argument("--json", action="store_true", help="the report as one JSON object")


def main(arguments: argparse.Namespace) -> int:
    """Run it; returns 1 if something is wrong with the engine, else 0. Raises `PellucidError` for wrong arguments."""
    with only_warnings():  # each round makes an engine: none says so
        if arguments.replay:
            return replay(Path(arguments.replay), json=arguments.json)
        if not arguments.minutes > 0:
            raise ConfigError(f"--minutes must be more than 0, not {arguments.minutes}.")
        if arguments.rounds is not None and arguments.rounds < 1:
            raise ConfigError(f"--rounds must be at least 1, not {arguments.rounds}.")
        return soak(arguments)


def soak(arguments: argparse.Namespace) -> int:
    """Soak, write the case of a failure to its file, and the report to stdout."""
    from pellucid.lab import soak as lab
    from pellucid.lab.bed import bed

    with _telling() as progress:
        report = lab.soak(
            arguments.model,
            bed(arguments.model),
            arguments.seed,
            seconds=60 * arguments.minutes,
            rounds=arguments.rounds,
            progress=progress,
        )
    if (finding := report.finding) is not None:
        file = Path(arguments.out or f"pellucid-soak-{finding.seed}-{finding.round}.json")
        lab.write(finding, file)
        print(f"pellucid soak: the case is in {file}; next: pellucid soak --replay {file}", file=sys.stderr)
    if arguments.json:
        print(msgspec.json.encode(report).decode())
    else:
        print(*_lines(report), sep="\n")
    return report.exit_status


def _lines(report: SoakReport) -> Iterator[str]:
    yield f"pellucid soak: {report.model}, seed {report.seed}, {report.seconds:.0f} s"
    for name in report.tally.__struct_fields__:
        yield f"  {name.replace('_', ' '):14}{getattr(report.tally, name):>12,}"
    if (finding := report.finding) is None:
        yield "Nothing is wrong: every invariant held at every step, and every output is what it is alone."
        return
    failure, case = finding.failure, finding.case
    yield f"WRONG in round {finding.round}: {failure.kind} {failure.code}".rstrip()
    yield f"  {failure.message}"
    yield f"  Shrunk to {case.requests} requests, {len(case.actions)} actions; it fails in step {failure.step} of them."


def replay(file: Path, *, json: bool = False) -> int:
    """Play the case of ``file``; 1 if it fails."""
    from pellucid.lab import soak as lab
    from pellucid.lab.bed import bed

    finding = lab.read(file)
    failure = lab.replay(finding, bed(finding.case.model))
    if json:
        print(msgspec.json.encode({"recorded": finding.failure, "now": failure}).decode())
    elif failure is None:
        print(f"It passes now. Recorded: {finding.failure.kind} {finding.failure.code}".rstrip())
    else:
        how = "as recorded" if finding.failure.same(failure) else "otherwise than recorded"
        print(f"It fails {how}, in step {failure.step}: {failure.kind} {failure.code}".rstrip())
        print(f"  {failure.message}")
    return 0 if failure is None else 1


@contextmanager
def _telling() -> Iterator[Progress]:
    """How far it is, on stderr: a line now and then, on a terminal always the same one."""
    console = Console(stderr=True)
    if console.is_terminal:
        with console.status("") as status:
            yield status.update
        return
    told = time.monotonic()

    def progress(line: str) -> None:
        nonlocal told
        if time.monotonic() - told >= EVERY_S:
            told = time.monotonic()
            print(f"pellucid soak: {line}", file=sys.stderr)

    yield progress
