"""``pellucid step``."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING, TextIO

from rich.console import Console
from rich.text import Text

from pellucid.lab.command import (
    ARITHMETIC,
    Options,
    add_engine_options,
    add_scheduling_mode,
    engine_options,
    working,
)
from pellucid.lang import encoded, say, told
from pellucid.view.language import add_language, language

if TYPE_CHECKING:
    from pellucid.lab.walk import Walk

NAMES = ("hole", "sharing", "revival", "pressure", "chunked")
OPTIONS: Options = (
    ("block-size", int, "tokens per block (4); the prompts grow with it"),
    ("num-gpu-blocks-override", int, "blocks in the pool, the reserved one included (25)"),
    ("max-num-batched-tokens", int, "tokens per step (2048; 8 for chunked)"),
    ("reuse-policy", str, "free-first, vllm-0.23 or vllm-0.24"),
    ("dtype", str, "auto, float32, bfloat16 or float16 (auto: float32 on a CPU)"),
    *ARITHMETIC,
)
PROMPT = say("Enter: next step   q: quit ")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of ``pellucid step``."""
    parser.add_argument("situation", choices=NAMES, help="what to walk through")
    parser.add_argument("--model", default="tiny", help="tiny, smollm2-135m, a folder, a .gguf file or a hub id")
    add_engine_options(parser, OPTIONS)
    add_scheduling_mode(parser)
    how = parser.add_mutually_exclusive_group()
    how.add_argument("--script", action="store_true", help="do not wait for Enter (nor does it in a pipe)")
    how.add_argument("--json", action="store_true", help="one JSON object a step, a line each")
    add_language(parser)


def main(arguments: argparse.Namespace) -> int:
    """Walk; returns the exit status. Raises `PellucidError` for a model or options that cannot work."""
    from pellucid.lab.pellucid_subject import PellucidLaboratory
    from pellucid.lab.situations import SITUATIONS
    from pellucid.lab.walk import Walk

    situation = SITUATIONS[arguments.situation]
    options = engine_options(arguments, OPTIONS)
    waits = not (arguments.script or arguments.json) and sys.stdin.isatty() and sys.stdout.isatty()
    spoken = language(arguments)
    with working(arguments.model, spoken):
        walk = Walk(situation, PellucidLaboratory(arguments.model, **{**situation.options, **options}))
        if arguments.json:
            for stride in walk:
                print(encoded(stride, spoken), flush=True)
        else:
            show(walk, sys.stdout, sys.stdin if waits else None, spoken)
    return 0


def show(walk: Walk, out: TextIO, keys: TextIO | None = None, language: str = "en") -> None:
    """Print ``walk`` to ``out``; with ``keys`` a line read from it, other than q, is what begins a step."""
    from pellucid.lab.page import Page
    from pellucid.lab.walk_terminal import ending, opening, stride_lines
    from pellucid.view import Letters

    console = Console(file=out, highlight=False)
    page = Page.of(console, language)
    letters = Letters()

    def write(lines: Iterable[Text]) -> None:
        for line in lines:
            console.print(line, soft_wrap=True)
        console.print()

    write(opening(walk, page))
    strides = iter(walk)
    while walk.unfinished:
        if keys and not _goes_on(out, keys, language):
            return
        write(stride_lines(next(strides), letters, page))
    write(ending(walk, page))


def _goes_on(out: TextIO, keys: TextIO, language: str) -> bool:
    out.write(told(PROMPT, language))
    out.flush()
    line = keys.readline()
    return bool(line) and not line.strip().lower().startswith("q")
