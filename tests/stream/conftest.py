"""A folder of sockets of its own for every test; an engine in this process, and one in another."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from watched_engine import ForcedEngine
from watching import EngineProcess


@pytest.fixture(autouse=True)
def runtime(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("PELLUCID_TOKEN", "PELLUCID_LISTEN", "PELLUCID_OBSERVE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PELLUCID_RUNTIME_DIR", str(tmp_path))
    return tmp_path


@pytest.fixture
def engine_process(runtime: Path) -> Iterator[EngineProcess]:
    engine = EngineProcess()
    yield engine
    engine.kill()


@pytest.fixture
def engine(runtime: Path) -> Iterator[ForcedEngine]:
    engine = ForcedEngine()
    yield engine
    engine.broadcast.publisher.close()
