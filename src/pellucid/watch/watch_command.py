"""``pellucid watch``."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from pathlib import Path

from rich.console import Console

from pellucid.errors import ConfigError
from pellucid.view.language import add_language, language
from pellucid.watch.dashboard import Dashboard
from pellucid.watch.facts import facts
from pellucid.watch.feed import Feed, feeds
from pellucid.watch.keys import QUIT, Keys
from pellucid.watch.screen import print_lines, screen

ON_SCREEN_S = 0.125
IN_A_PIPE_S = 1.0
STEP_WAIT_S = 0.2
MOST_TIME = 0.25
"""Part of the time that may go into drawing: large pools are drawn less often."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of ``pellucid watch``."""
    parser.add_argument(
        "target",
        nargs="*",
        metavar="TARGET",
        help="a process id, a socket or http://host:port; several stand side by side "
        "(the engine of this user that is there, with all its ranks)",
    )
    parser.add_argument("--once", action="store_true", help="one picture, then exit")
    parser.add_argument("--json", action="store_true", help="a JSON object a step and engine, a line each")
    parser.add_argument("--record", type=Path, metavar="FILE", help="write what is watched to FILE, for pellucid replay")
    parser.add_argument("--interval", type=float, metavar="S", help="seconds between two pictures (0.125; 1 in a pipe)")
    add_language(parser)


def main(arguments: argparse.Namespace) -> int:
    """Watch; returns 0 if the engine ended in good order or nobody wants to see more, 1 if it was lost."""
    if arguments.interval is not None and not arguments.interval > 0:
        raise ConfigError(f"--interval must be more than 0 seconds, not {arguments.interval:g}.")
    if arguments.record and len(arguments.target) > 1:
        raise ConfigError("--record writes one engine core to a file; name one TARGET.")
    spoken = language(arguments)
    with ExitStack() as stack:
        watched = feeds(arguments.target, arguments.record, stack)
        for feed in watched:
            feed.wait_for_picture()
        dashboard = Dashboard(len(watched), spoken)
        interval = arguments.interval or (ON_SCREEN_S if sys.stdout.isatty() else IN_A_PIPE_S)
        if arguments.once:
            _print(watched, dashboard, json=arguments.json)
        elif arguments.json:
            _print_steps(watched)
        elif sys.stdout.isatty():
            _show(watched, dashboard, interval)
        else:
            _print_pictures(watched, dashboard, interval)
        return max(feed.status for feed in watched)


def _print(watched: Sequence[Feed], dashboard: Dashboard, *, json: bool = False) -> None:
    """What is there now, for a person or for a program."""
    if json:
        for feed in watched:
            _print_facts(feed)
    else:
        console = Console(highlight=False)
        print_lines(console, dashboard.lines([feed.scene() for feed in watched], console.width))


def _print_facts(feed: Feed) -> None:
    sys.stdout.write(json.dumps(facts(feed.scene())) + "\n")
    sys.stdout.flush()


def _print_steps(watched: Sequence[Feed]) -> None:
    for feed in watched:
        _print_facts(feed)
    while any(feed.goes_on for feed in watched):
        for feed in watched:
            if feed.goes_on and feed.take(STEP_WAIT_S / len(watched)):
                _print_facts(feed)


def _print_pictures(watched: Sequence[Feed], dashboard: Dashboard, interval: float) -> None:
    _print(watched, dashboard)
    for feed in watched:
        feed.start()
    while any(feed.goes_on for feed in watched):
        before = [feed.version for feed in watched]
        time.sleep(interval)
        if [feed.version for feed in watched] != before:
            print()
            _print(watched, dashboard)


def _show(watched: Sequence[Feed], dashboard: Dashboard, interval: float) -> None:
    """Draw on the terminal's other screen until q, Ctrl-C, or the end of all engines, which stays on the first one."""
    console = Console(highlight=False)
    for feed in watched:
        feed.start()
    with suppress(KeyboardInterrupt), Keys() as keys, screen(console) as draw:
        while any(feed.goes_on for feed in watched):
            begun = time.monotonic()
            draw(dashboard.lines([feed.scene() for feed in watched], *console.size))
            spent = time.monotonic() - begun
            if QUIT in keys.read(max(interval - spent, spent * (1 / MOST_TIME - 1))):
                return
    if not any(feed.goes_on for feed in watched):
        print_lines(console, dashboard.lines([feed.scene() for feed in watched], *console.size))
