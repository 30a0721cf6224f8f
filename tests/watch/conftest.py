"""An engine to watch, and a short path for its socket."""

from __future__ import annotations

import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from watch.driven import Driven, Run, driven, line_of, watching


@pytest.fixture(scope="session")
def folder() -> Iterator[Path]:
    """Where engines are found; a socket's path must be short."""
    with tempfile.TemporaryDirectory(prefix="pw-", dir="/tmp") as path:
        yield Path(path)


@pytest.fixture(scope="session")
def engine(folder: Path) -> Iterator[Driven]:
    """A real engine for all tests that leave it without requests."""
    with driven(folder) as engine:
        yield engine


@pytest.fixture(scope="session")
def run(folder: Path, engine: Driven) -> Run:
    """dan's prompt is cached, then flood needs room, then erin comes with dan's prompt again."""
    file = folder / "run.rec"
    engine.add("dan", 1, 33, 2)
    watcher = watching(folder, "--json", "--record", str(file))
    told, tables = [line_of(watcher)], []
    for turn in (
        *[lambda: engine.step(1)] * 2,
        lambda: engine.add("flood", 100, 145, 3),
        *[lambda: engine.step(1)] * 3,
        lambda: engine.add("erin", 1, 33, 3),
        *[lambda: engine.step(1)] * 3,
    ):
        tables.append(turn())
        told.append(line_of(watcher))
    watcher.send_signal(signal.SIGINT)
    watcher.communicate(timeout=60)
    return Run(file, told, tables)
