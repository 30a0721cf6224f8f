"""``pellucid replay``."""

from __future__ import annotations

import argparse
import sys
import time
from contextlib import suppress
from pathlib import Path

from rich.console import Console
from rich.text import Text

from pellucid.errors import ConfigError
from pellucid.lang import told
from pellucid.view.language import add_language, language
from pellucid.view.lines import wrapped
from pellucid.watch.dashboard import Dashboard
from pellucid.watch.facts import print_facts
from pellucid.watch.keys import QUIT, Keys
from pellucid.watch.moment import parse_moment
from pellucid.watch.player import FASTEST, KEYS, Player
from pellucid.watch.screen import print_lines, screen
from pellucid.watch.tape import Tape, read_tape

INTERVAL_S = 0.05


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of ``pellucid replay``."""
    parser.add_argument("file", type=Path, metavar="FILE", help="what watch --record wrote, or a saved journal")
    parser.add_argument("--at", metavar="MOMENT", help="begin at a step (120), a time (41s, 1:30) or a share (50%%)")
    parser.add_argument("--speed", type=float, default=1.0, metavar="X", help="seconds of the recording a second (1)")
    parser.add_argument("--once", action="store_true", help="one picture, of the end or of --at, then exit")
    parser.add_argument("--json", action="store_true", help="a JSON object a step, a line each")
    add_language(parser)


def main(arguments: argparse.Namespace) -> int:
    """Play; returns the exit status. Raises `JournalError` for a file that cannot be played."""
    if not 1 / FASTEST <= arguments.speed <= FASTEST:
        raise ConfigError(f"--speed must be from 1/{FASTEST:g} to {FASTEST:g}, not {arguments.speed:g}.")
    spoken = language(arguments)
    moment = parse_moment(arguments.at) if arguments.at else None
    tape = read_tape(arguments.file)
    start = tape.at(moment) if moment else 0
    dashboard = Dashboard(1, spoken)
    if arguments.once:
        _print(tape, start if moment else tape.last, dashboard, json=arguments.json)
    elif sys.stdout.isatty() and not arguments.json:
        _show(Player(tape, start, arguments.speed), dashboard, spoken)
    else:
        for position in range(start, tape.last + 1):
            _print(tape, position, dashboard, json=arguments.json)
            if not arguments.json and position < tape.last:
                print()
    return 0


def _print(tape: Tape, position: int, dashboard: Dashboard, *, json: bool) -> None:
    if json:
        print_facts(tape.scene(position))
    else:
        console = Console(highlight=False)
        print_lines(console, dashboard.lines([tape.scene(position)], console.width))


def _show(player: Player, dashboard: Dashboard, language: str) -> None:
    """Play on the terminal's other screen, until q or Ctrl-C; the end stays on it."""
    console = Console(highlight=False)
    with suppress(KeyboardInterrupt), Keys() as keys, screen(console) as draw:
        before = time.monotonic()
        drawn: tuple[object, ...] = ()
        while True:
            state = (player.position, str(player.status), console.size)
            if state != drawn:
                draw(_page(player, dashboard, *console.size, language))
                drawn = state
            pressed = keys.read(INTERVAL_S)
            if QUIT in pressed:
                return
            now = time.monotonic()
            player.advance(now - before)
            before = now
            for key in pressed:
                player.press(key)


def _page(player: Player, dashboard: Dashboard, width: int, height: int, language: str) -> list[Text]:
    """The picture, and below it where the recording stands and what the keys do."""
    footer = [
        Text(line, style=style)
        for text, style in ((player.status, "bold"), (KEYS, "dim"))
        for line in wrapped(told(text, language), width)
    ]
    lines = dashboard.lines([player.tape.scene(player.position)], width, max(1, height - len(footer) - 1))
    filler = [Text()] * max(0, height - len(footer) - len(lines))
    return [*lines, *filler, *footer][:height]
