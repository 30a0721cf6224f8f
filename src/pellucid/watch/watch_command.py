"""``pellucid watch``."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path

from rich.console import Console

from pellucid.errors import ConfigError
from pellucid.lang import Sentence, say, told
from pellucid.view.language import add_language, language
from pellucid.watch.dashboard import Dashboard
from pellucid.watch.facts import facts
from pellucid.watch.feed import Feed, feeds
from pellucid.watch.keys import Keys
from pellucid.watch.page import plain, write
from pellucid.watch.scene import Scene
from pellucid.watch.screen import Canvas

ON_SCREEN_S = 0.125
IN_A_PIPE_S = 1.0
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
        dashboard = Dashboard(len(watched), spoken)
        if arguments.once:
            for feed in watched:
                feed.wait_for_picture()
            _print_once(watched, dashboard, json=arguments.json)
            return max(feed.status for feed in watched)
        if arguments.json:
            return _print_steps(watched)
        if sys.stdout.isatty():
            return _show(watched, dashboard, arguments.interval or ON_SCREEN_S, spoken)
        return _print_pictures(watched, dashboard, arguments.interval or IN_A_PIPE_S)
