"""An engine to watch, and a short path for its socket."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from watch.driven import Driven, driven


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
