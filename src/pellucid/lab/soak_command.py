"""``pellucid soak``."""

from __future__ import annotations

import argparse
import shlex
import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from rich.cells import cell_len
from rich.console import Console

from pellucid.errors import ConfigError
from pellucid.lab.command import (
    ARITHMETIC,
    Options,
    add_engine,
    add_engine_options,
    engine_options,
    tell_presets,
    vllm_words,
    words,
)
from pellucid.lang import encoded, say, told
from pellucid.log import only_warnings
from pellucid.view.language import add_language, language
from pellucid.view.lines import padded

if TYPE_CHECKING:
    from pellucid.lab.bed import Bed, Reference
    from pellucid.lab.round import Failure
    from pellucid.lab.soak import Draw, Progress, SoakReport

OPTIONS: Options = (
    ("dtype", str, "float32, in which equal requests give equal tokens, or bfloat16 or float16 (float32)"),
    *ARITHMETIC,
)
EVERY_S = 10
COUNTED = {
    "rounds": say("rounds"),
    "steps": say("steps"),
    "requests": say("requests"),
    "aborts": say("aborts"),
    "preemptions": say("preemptions"),
    "hit_tokens": say("hit tokens"),
    "hit_blocks": say("hit blocks"),
    "evictions": say("evictions"),
    "moves": say("moves"),
    "output_tokens": say("output tokens"),
    "audits": say("audits"),
    "compared": say("outputs compared"),
    "close_calls": say("close calls"),
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of ``pellucid soak``."""
    parser.add_argument("--minutes", type=float, default=1.0, metavar="N", help="how long (1)")
    parser.add_argument("--rounds", type=int, metavar="N", help="stop after so many rounds, if time is not up before")
    parser.add_argument("--seed", type=int, default=0, metavar="S", help="the same seed plays the same rounds (0)")
    parser.add_argument(
        "--model",
        help="tiny, none (no model at all: only what it would read, and the fastest), smollm2-135m, a folder, "
        "a .gguf file or a hub id (tiny; smollm2-135m with --engine vllm)",
    )
    add_engine(parser)
    add_engine_options(parser, OPTIONS)
    parser.add_argument(
        "--out", metavar="FILE", help="where a failure's case goes (pellucid-soak-SEED-ROUND.json in this folder)"
    )
    parser.add_argument("--replay", metavar="FILE", help="play the case of FILE, and nothing else")
    parser.add_argument("--json", action="store_true", help="the report as one JSON object")
    add_language(parser)


def main(arguments: argparse.Namespace) -> int:
    """Run it; returns 1 if something is wrong with the engine, else 0. Raises `PellucidError` for wrong arguments."""
    with only_warnings():  # each round makes an engine: none says so
        if arguments.replay:
            return replay(arguments)
        if not arguments.minutes > 0:
            raise ConfigError(f"--minutes must be more than 0, not {arguments.minutes}.")
        if arguments.rounds is not None and arguments.rounds < 1:
            raise ConfigError(f"--rounds must be at least 1, not {arguments.rounds}.")
        return soak(arguments)


class Bench(NamedTuple):
    """On what a soak runs, and ``words`` to type for the same."""

    model: str
    bed: Bed
    draw: Draw
    reference: Reference
    words: str


@contextmanager
def _bench(arguments: argparse.Namespace, language: str) -> Iterator[Bench]:
    from pellucid.lab.bed import Reference, bed
    from pellucid.lab.load import draw

    if arguments.engine == "pellucid":
        model = arguments.model or "tiny"
        given = engine_options(arguments, OPTIONS)
        ours = bed(model, given)
        yield Bench(model, ours, draw, Reference(ours), " ".join([*words(given), ""]))
        return
    from pellucid.lab.vllm_bed import VllmBed, VllmReference
    from pellucid.lab.vllm_laboratory import VllmLaboratory
    from pellucid.lab.vllm_load import draw_for_vllm

    model = arguments.model or "smollm2-135m"
    asked = vllm_words(arguments, OPTIONS)
    laboratory = VllmLaboratory(model, ["--dtype", "float32", *asked])
    tell_presets(laboratory.presets, language)
    draw = partial(draw_for_vllm, block_size=laboratory.block_size, asynchronous=not laboratory.cpu)
    with closing(laboratory):
        theirs = VllmBed(laboratory)
        again = shlex.join(["--engine", "vllm", "--model", model, *asked])
        yield Bench(model, theirs, draw, VllmReference(theirs), f"{again} ")


def soak(arguments: argparse.Namespace) -> int:
    """Soak, write the case of a failure to its file, and the report to stdout."""
    from pellucid.lab import soak as lab

    spoken = language(arguments)
    with _bench(arguments, spoken) as bench, _telling(spoken) as progress:
        report = lab.soak(
            bench.model,
            bench.bed,
            arguments.seed,
            seconds=60 * arguments.minutes,
            rounds=arguments.rounds,
            progress=progress,
            draw=bench.draw,
            reference=bench.reference,
        )
    if (finding := report.finding) is not None:
        file = Path(arguments.out or f"pellucid-soak-{finding.seed}-{finding.round}.json")
        lab.write(finding, file)
        where = say("the case is in {file}; next: pellucid soak {words}--replay {file}", file=file, words=bench.words)
        print(f"pellucid soak: {told(where, spoken)}", file=sys.stderr)
    if arguments.json:
        print(encoded(report))
    else:
        print(*(told(line, spoken) for line in _lines(report, spoken)), sep="\n")
    return report.exit_status


def _lines(report: SoakReport, language: str) -> Iterator[str]:
    yield say("pellucid soak: {model}, seed {seed}, {s:.0f} s", model=report.model, seed=report.seed, s=report.seconds)
    labels = {name: told(COUNTED[name], language) for name in report.tally.__struct_fields__}
    column = max(map(cell_len, labels.values())) + 2
    for name, label in labels.items():
        yield f"  {padded(label, column)}{getattr(report.tally, name):>12,}"
    if (finding := report.finding) is None:
        yield say("Nothing is wrong: every invariant held at every step, and every output is what it is alone.")
        return
    failure, case = finding.failure, finding.case
    yield say("WRONG in round {n}: {what}", n=finding.round, what=failure.title)
    yield f"  {failure.message}"
    yield say(
        "  Shrunk to {requests} requests, {actions} actions; it fails in step {step} of them.",
        requests=case.requests,
        actions=len(case.actions),
        step=failure.step,
    )


def replay(arguments: argparse.Namespace) -> int:
    """Play the case of a file; 1 if it fails."""
    from pellucid.lab import soak as lab

    spoken, finding = language(arguments), lab.read(Path(arguments.replay))
    arguments.model = arguments.model or finding.case.model
    with _bench(arguments, spoken) as bench:
        failure = lab.replay(finding, bench.bed, bench.reference)
    if arguments.json:
        print(encoded({"recorded": finding.failure, "now": failure}))
    elif failure is None:
        print(told(say("It passes now. Recorded: {what}", what=finding.failure.title), spoken))
    else:
        print(told(_fails(failure, as_recorded=finding.failure.same(failure)), spoken))
        print(f"  {failure.message}")
    return 0 if failure is None else 1


def _fails(failure: Failure, *, as_recorded: bool) -> str:
    if as_recorded:
        return say("It fails as recorded, in step {step}: {what}", step=failure.step, what=failure.title)
    return say("It fails otherwise than recorded, in step {step}: {what}", step=failure.step, what=failure.title)


@contextmanager
def _telling(language: str) -> Iterator[Progress]:
    """How far it is, on stderr: a line now and then, on a terminal always the same one."""
    console = Console(stderr=True)
    if console.is_terminal:
        with console.status("") as status:
            yield lambda line: status.update(told(line, language))
        return
    last = time.monotonic()

    def progress(line: str) -> None:
        nonlocal last
        if time.monotonic() - last >= EVERY_S:
            last = time.monotonic()
            print(f"pellucid soak: {told(line, language)}", file=sys.stderr)

    yield progress
