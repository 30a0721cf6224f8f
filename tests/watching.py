"""Engines in processes of their own, and watchers that know what they were told."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import msgspec

from pellucid.errors import StreamError
from pellucid.kv import Snapshot
from pellucid.stream.live import Live
from pellucid.stream.reader import Reader, connect

PATIENCE = 30.0
"""Seconds after which a test gives up on something that takes a tenth of one."""


class EngineProcess:
    """A `ForcedEngine` in a process of its own."""

    def __init__(self) -> None:
        script = Path(__file__).with_name("watched_engine.py")
        self.process = subprocess.Popen(
            [sys.executable, str(script)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert self.process.stdout
        self.path = Path(self.process.stdout.readline().strip())

    def do(self, command: str) -> str:
        assert self.process.stdin
        assert self.process.stdout
        self.process.stdin.write(command + "\n")
        self.process.stdin.flush()
        return self.process.stdout.readline().strip()

    def snapshot(self) -> Snapshot:
        return msgspec.json.decode(self.do("snapshot"), type=Snapshot)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()


class Watching:
    """A reader and what it knows."""

    def __init__(self, target: str | int | Path | None = None) -> None:
        self.reader: Reader = connect(target, PATIENCE)
        self.live = Live(self.reader.hello.watched)

    def take(self, timeout: float = PATIENCE) -> bool:
        message = self.reader.next(timeout)
        if message is not None:
            self.live.take(message)
        return message is not None

    def to_the_end(self) -> StreamError:
        """How it ended."""
        try:
            while True:
                self.take()
        except StreamError as error:
            return error

    def until(self, wanted: Callable[[Live], bool]) -> Live:
        deadline = time.monotonic() + PATIENCE
        while not wanted(self.live):
            assert time.monotonic() < deadline, "it never came to that"
            self.take(1.0)
        return self.live

    def catch_up(self, snapshot: Snapshot) -> None:
        """Whatever was missed, what is known in the end is what is."""
        self.until(lambda live: live.ready and live.snapshot.acts >= snapshot.acts)
        assert self.live.snapshot == snapshot


def eventually(wanted: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not wanted():
        assert time.monotonic() < deadline, "it never came to that"
        time.sleep(0.01)
