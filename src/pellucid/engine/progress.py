"""A bar for long work, on a terminal's stderr."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn


@contextmanager
def progress(title: str, total: int, *, show: bool = True) -> Iterator[Callable[[int], None]]:
    """A bar that is gone when the work is done; what it gives is called with how much has been done since."""
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True, disable=not (show and console.is_terminal)) as bar:
        task = bar.add_task(title, total=total)
        yield lambda done: bar.advance(task, done)
