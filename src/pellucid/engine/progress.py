"""A bar for long work, on a terminal's stderr."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def progress(title: str, total: int, *, show: bool = True) -> Iterator[Callable[[int], None]]:
    """A bar that is gone when the work is done; what it gives is called with how much has been done since."""
    if not (show and sys.stderr and sys.stderr.isatty()):
        yield lambda done: None
        return
    from rich.console import Console  # here, because it takes a tenth of a second that a script without a bar can save
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(title, total=total)
        yield lambda done: bar.advance(task, done)
