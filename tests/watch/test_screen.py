"""The live screen and the player in a real pseudo-terminal, with keys."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
from rich.cells import cell_len

from watch.driven import Driven, Run, environment
from watch.terminal import terminal


def test_the_screen_lives_and_q_gives_the_terminal_back(folder: Path, engine: Driven) -> None:
    with terminal("watch", environment=environment(folder)) as screen:
        screen.until("process")
        engine.add("alice", 1, 13)
        engine.step(1)
        lines = screen.until("alice")
        assert len(lines) <= 24
        assert lines[-1].startswith("q quit")
        assert any(line.split()[:6] == ["A", "alice", "running", "13", "4", "3"] for line in lines)
        screen.resize(150, 40)
        screen.until("alice    ")
        engine.add("bob", 1, 5)
        engine.step(1)
        wide = screen.until("bob")
        assert 24 < len(wide) <= 40
        screen.press("q")
        assert screen.end() == 0
        assert screen.restored
    for name in ("alice", "bob"):
        engine.abort(name)


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 0), (signal.SIGTERM, 128 + signal.SIGTERM)])
def test_signals_give_the_terminal_back(folder: Path, engine: Driven, number: int, status: int) -> None:
    with terminal("watch", environment=environment(folder)) as screen:
        screen.until("process")
        os.kill(screen.process.pid, number)
        assert screen.end() == status
        assert screen.restored


def test_a_recording_is_played_paused_and_stepped_through(folder: Path, run: Run) -> None:
    last = len(run.told) - 1
    with terminal("replay", str(run.file), "--speed", "0.01", environment=environment(folder)) as screen:
        screen.until(f"playing   0 of {last}")
        screen.press(" ")
        screen.until(f"paused   0 of {last}")
        screen.press("\x1b[C\x1b[C")
        lines = screen.until(f"paused   2 of {last}")
        step = run.told[2]["step"]
        assert f"step {step}" in lines[0]
        screen.press("\x1b[D")
        screen.until(f"paused   1 of {last}")
        screen.press("\x1bOF")
        screen.until(f"paused   {last} of {last}")
        screen.press("0")
        screen.until(f"paused   0 of {last}")
        screen.press("++")
        screen.until("speed 0.04")
        screen.press("G")
        screen.until(f"paused   {last} of {last}")
        screen.press("q")
        assert screen.end() == 0
        assert screen.restored


def test_a_recording_plays_by_itself_to_its_end(folder: Path, run: Run) -> None:
    last = len(run.told) - 1
    with terminal("replay", str(run.file), "--speed", "256", environment=environment(folder), columns=72) as screen:
        lines = screen.until(f"paused   {last} of {last}")
        assert max(map(cell_len, lines)) <= 72
        screen.press("\x03")
        assert screen.end() == 0
        assert screen.restored
