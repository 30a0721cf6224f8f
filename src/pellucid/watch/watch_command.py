"""``pellucid watch``."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from pathlib import Path

from rich.console import Console
from rich.text import Text

from pellucid.errors import ConfigError
from pellucid.lang import say, told
from pellucid.view.language import add_language, language
from pellucid.watch.dashboard import Dashboard
from pellucid.watch.facts import print_facts
from pellucid.watch.feed import Feed
from pellucid.watch.keys import QUIT, Keys
from pellucid.watch.screen import print_lines, screen
from pellucid.watch.targets import HELP, feeds

KEYS = say("q quit")
ON_SCREEN_S = 0.125
IN_A_PIPE_S = 1.0
STEP_WAIT_S = 0.2
MOST_TIME = 0.25
"""Part of the time that may go into drawing: large pools are drawn less often."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of ``pellucid watch``."""
    parser.add_argument("targets", nargs="*", metavar="TARGET", help=HELP)
    parser.add_argument("--once", action="store_true", help="one picture, then exit")
    parser.add_argument("--json", action="store_true", help="a JSON object a step and engine, a line each")
    parser.add_argument("--record", type=Path, metavar="FILE", help="write all that comes to FILE, for replay")
    parser.add_argument("--interval", type=float, metavar="S", help="seconds between two pictures (0.125; 1 in a pipe)")
    add_language(parser)


def main(arguments: argparse.Namespace) -> int:
    """Watch; returns 0 if the engine ended in good order or nobody wants to see more, 1 if it was lost."""
    if arguments.interval is not None and not arguments.interval > 0:
        raise ConfigError(f"--interval must be more than 0 seconds, not {arguments.interval:g}.")
    spoken = language(arguments)
    with ExitStack() as stack:
        watched = feeds(arguments.targets, arguments.record, stack)
        dashboard = Dashboard(len(watched), spoken)
        interval = arguments.interval or (ON_SCREEN_S if sys.stdout.isatty() else IN_A_PIPE_S)
        if arguments.once:
            _print(watched, dashboard, json=arguments.json)
        elif arguments.json:
            _print_steps(watched)
        elif sys.stdout.isatty():
            _show(watched, dashboard, interval, spoken)
        else:
            _print_pictures(watched, dashboard, interval)
    return max(feed.status for feed in watched)


def _print(watched: Sequence[Feed], dashboard: Dashboard, *, json: bool = False) -> None:
    """What is there now, for a person or for a program."""
    if json:
        for feed in watched:
            print_facts(feed.scene())
    else:
        console = Console(highlight=False)
        print_lines(console, dashboard.lines([feed.scene() for feed in watched], console.width))


def _print_steps(watched: Sequence[Feed]) -> None:
    for feed in watched:
        print_facts(feed.scene())
    while any(feed.ended is None for feed in watched):
        for feed in watched:
            if feed.ended is None and feed.take(STEP_WAIT_S / len(watched)):
                print_facts(feed.scene())


def _print_pictures(watched: Sequence[Feed], dashboard: Dashboard, interval: float) -> None:
    """A picture whenever something has changed, the end of all engines being the last of it."""
    _print(watched, dashboard)
    shown = [feed.version for feed in watched]
    for feed in watched:
        feed.start()
    while True:
        ends = all(feed.ended is not None for feed in watched)
        if (versions := [feed.version for feed in watched]) != shown:
            print()
            _print(watched, dashboard)
            shown = versions
        if ends:
            return
        time.sleep(interval)


def _show(watched: Sequence[Feed], dashboard: Dashboard, interval: float, language: str) -> None:
    """Draw on the terminal's other screen until q, Ctrl-C, or the end of all engines, which stays on the first one."""
    console = Console(highlight=False)
    for feed in watched:
        feed.start()
    with suppress(KeyboardInterrupt), Keys() as keys, screen(console) as draw:
        while any(feed.ended is None for feed in watched):
            begun = time.monotonic()
            width, height = console.size
            lines = dashboard.lines([feed.scene() for feed in watched], width, height - 1)
            draw([*lines, *[Text()] * (height - 1 - len(lines)), Text(told(KEYS, language), style="dim")])
            spent = time.monotonic() - begun
            if QUIT in keys.read(max(interval - spent, spent * (1 / MOST_TIME - 1))):
                return
    if not any(feed.ended is None for feed in watched):
        print_lines(console, dashboard.lines([feed.scene() for feed in watched], *console.size))
