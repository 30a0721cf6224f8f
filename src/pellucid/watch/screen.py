"""The terminal as one screen that is drawn again and again, and given back as it was."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from types import FrameType

from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

Draw = Callable[[Sequence[Text]], None]


@contextmanager
def screen(console: Console) -> Iterator[Draw]:
    """The alternate screen of ``console``; what is yielded draws lines on it, from the top left corner."""
    live = Live(console=console, screen=True, auto_refresh=False, redirect_stdout=False, redirect_stderr=False)

    def draw(lines: Sequence[Text]) -> None:
        for line in lines:
            line.no_wrap, line.overflow = True, "crop"
        live.update(Group(*lines), refresh=True)

    with _leaving_on_signals(), live:
        yield draw


@contextmanager
def _leaving_on_signals() -> Iterator[None]:
    """A signal that would end the process ends it through the contexts around, which restore the terminal."""

    def leave(number: int, frame: FrameType | None) -> None:
        raise SystemExit(128 + number)

    before = {number: signal.signal(number, leave) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def print_lines(console: Console, lines: Iterable[Text]) -> None:
    """``lines`` as they are, one below another."""
    for line in lines:
        console.print(line, soft_wrap=True)
