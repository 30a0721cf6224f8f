"""``pellucid prove``."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from rich.console import Console
from rich.status import Status

from pellucid.errors import ConfigError, PageError
from pellucid.lang import encoded, say, told
from pellucid.log import only_warnings
from pellucid.view.language import add_language, language

if TYPE_CHECKING:
    from pellucid.lab.subject import Laboratory
    from pellucid.lab.trial import Plays, Report
    from pellucid.lab.vllm_presets import Preset

ENGINES = ("pellucid", "vllm")

Options = tuple[tuple[str, type, str], ...]
"""Engine options on a command line: name, type and help of each."""

ARITHMETIC: Options = (
    ("device", str, "auto, cpu or cuda (auto: a GPU if torch sees one and Triton can be imported)"),
    ("kernels", str, "auto, triton, compiled, onednn or torch"),
    ("attention-backend", str, "auto, triton, compiled or reference"),
)

OPTIONS: Options = (
    ("dtype", str, "auto, float32, bfloat16 or float16 (auto: float32 on a CPU)"),
    ("block-size", int, "tokens per block (16)"),
    (
        "num-gpu-blocks-override",
        int,
        "blocks in the pool, the reserved one included (80 of 16 tokens: few, so that you see re-use)",
    ),
    ("max-model-len", int, "the longest request, in tokens"),
    ("max-num-batched-tokens", int, "tokens per step (2048; 8192 on a GPU)"),
    ("reuse-policy", str, "free-first, vllm-0.23 or vllm-0.24"),
    *ARITHMETIC,
)

OURS = ("reuse_policy", "kernels")
"""What only Pellucid's own engines have."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of ``pellucid prove``."""
    parser.add_argument(
        "--model", default="smollm2-135m", help="smollm2-135m, tiny, a folder, a .gguf file or a hub id"
    )
    add_engine(parser)
    parser.add_argument(
        "--claim",
        action="append",
        default=[],
        metavar="ID",
        help="judge this claim only, on the scenarios that it needs; may be given several times",
    )
    add_engine_options(parser, OPTIONS)
    add_scheduling_mode(parser)
    parser.add_argument("--json", action="store_true", help="one JSON object with all the evidence")
    parser.add_argument(
        "--html", type=Path, metavar="FILE", help="write the report to FILE too, as one page with timelines"
    )
    add_language(parser)


def add_engine(parser: argparse.ArgumentParser) -> None:
    """``--engine``; what it does not know itself, `pellucid.cli` leaves in ``others``."""
    parser.add_argument(
        "--engine",
        choices=ENGINES,
        default="pellucid",
        help="pellucid, or the vllm of this Python's environment, observed from outside: it takes any further option "
        "of vLLM's",
    )


def add_engine_options(parser: argparse.ArgumentParser, options: Options) -> None:
    """``options``; `engine_options` reads them back."""
    for name, kind, text in options:
        parser.add_argument(f"--{name}", type=kind, metavar="N" if kind is int else "NAME", help=text)


def add_scheduling_mode(parser: argparse.ArgumentParser) -> None:
    """``--async-scheduling``, which `engine_options` reads back as well."""
    parser.add_argument("--async-scheduling", action="store_true", help="plan each step before the last one is back")


def engine_options(arguments: argparse.Namespace, options: Options) -> dict[str, Any]:
    """Those of ``options`` that were given, as `pellucid.LLM` takes them."""
    names = [name.replace("-", "_") for name, _, _ in options]
    given = {name: value for name in names if (value := getattr(arguments, name)) is not None}
    return {**given, "async_scheduling": True} if getattr(arguments, "async_scheduling", False) else given


def vllm_words(arguments: argparse.Namespace, options: Options) -> list[str]:
    """What was given, our options too, as on vLLM's command line: they have its names and meaning."""
    given = engine_options(arguments, options)
    for name in (name for name in OURS if name in given):
        raise ConfigError(f"--{name.replace('_', '-')} chooses among Pellucid's own; vLLM has what it has.")
    return [*words(given), *arguments.others]


def words(given: Mapping[str, Any]) -> list[str]:
    """The options ``given``, as on a command line."""
    named = [(f"--{name.replace('_', '-')}", value) for name, value in given.items()]
    return [word for name, value in named for word in ([name] if value is True else [name, str(value)])]


def main(arguments: argparse.Namespace) -> int:
    """Run it; returns the exit status. Raises `PellucidError` for a model or options that cannot work."""
    vllm = arguments.engine == "vllm"
    return prove(
        arguments.model,
        {} if vllm else engine_options(arguments, OPTIONS),
        engine=arguments.engine,
        words=vllm_words(arguments, OPTIONS) if vllm else (),
        claims=arguments.claim,
        json=arguments.json,
        html=arguments.html,
        language=language(arguments),
    )


def prove(
    model: str = "smollm2-135m",
    options: Mapping[str, Any] | None = None,
    *,
    engine: str = "pellucid",
    words: Sequence[str] = (),
    claims: Sequence[str] = (),
    json: bool = False,
    html: Path | None = None,
    stream: TextIO | None = None,
    language: str = "en",
) -> int:
    """Put the claims to the proof on ``model`` and write the report to ``stream`` (stdout by default).

    ``language`` (one of `pellucid.lang.LANGUAGES`) is that of its sentences; names and numbers are the same in each.
    With ``html`` it is also written to that file, as a page that needs nothing else; `PageError` if that cannot be.
    ``engine`` is "pellucid" or "vllm", the one that can be imported here. ``options`` are those of `pellucid.LLM`, or
    vLLM's own, which may also be given as the ``words`` of its command line; without a pool size the pool is small, see
    `PellucidLaboratory`. ``claims`` are the ids of those to judge, all of them if none is given; raises `ConfigError`
    for an unknown one. Returns 0 if nothing is refuted, else 1.
    """
    from pellucid.lab.claims import CLAIMS, claims_named

    chosen = claims_named(claims) if claims else CLAIMS
    if html:
        _check_place(html)
    from pellucid.lab.trial import play_for, report

    with working(model, language) as progress, _laboratory(engine, model, options or {}, words, language) as laboratory:
        plays = play_for(laboratory, chosen, progress)
        result = report(plays, chosen)
    out = stream or sys.stdout
    if json:
        out.write(encoded(result, language) + "\n")
    else:
        from pellucid.lab.terminal import print_report

        print_report(result, out, language)
    if html:
        _write_page(html, result, plays, language)
        print(told(say("The report as a page: {path}", path=str(html)), language), file=sys.stderr if json else out)
    return result.exit_status


@contextmanager
def _laboratory(
    engine: str, model: str, options: Mapping[str, Any], words: Sequence[str], language: str
) -> Iterator[Laboratory]:
    """Where the engines are made; what is set for a vLLM is told on stderr."""
    if engine == "pellucid":
        from pellucid.lab.pellucid_subject import PellucidLaboratory

        yield PellucidLaboratory(model, **options)
        return
    from pellucid.lab.vllm_laboratory import VllmLaboratory

    laboratory = VllmLaboratory(model, words, **options)
    tell_presets(laboratory.presets, language)
    with closing(laboratory):
        yield laboratory


def tell_presets(presets: Sequence[Preset], language: str) -> None:
    """What was set before vLLM started, a line each, on stderr."""
    for preset in presets:
        print(f"pellucid: {told(preset.line, language)}", file=sys.stderr)


def _check_place(path: Path) -> None:
    """Better now than after the run."""
    if path.is_dir() or not path.absolute().parent.is_dir():
        raise PageError(f"--html {path} is {'a folder' if path.is_dir() else 'in no folder that exists'}: name a file.")


def _write_page(path: Path, report: Report, plays: Plays, language: str) -> None:
    from pellucid.lab.html import page

    try:
        path.write_text(page(report, plays.recordings, language), encoding="utf-8")
    except OSError as error:
        raise PageError(f"the report cannot be written to {path}: {error.strerror}.") from error


@contextmanager
def working(model: str, language: str = "en") -> Iterator[Callable[[str, int], None]]:
    """Says on a terminal's stderr what is going on, in place of the engines' own lines."""
    with only_warnings():
        console = Console(stderr=True)
        if console.is_terminal:
            yield from _telling(model, language, console)
        else:
            yield lambda about, step: None


def _telling(model: str, language: str, console: Console) -> Iterator[Callable[[str, int], None]]:
    console.print(told(say("loading {model} ...", model=model), language), highlight=False)
    status = Status("", console=console)

    def progress(about: str, step: int) -> None:
        status.start()
        status.update(told(say("{about}: step {step}", about=about, step=step), language))

    try:
        yield progress
    finally:
        status.stop()
