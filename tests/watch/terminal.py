"""A real pseudo-terminal: what a command draws on it, and keys for it."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\x1b[()][A-Z0-9]")
HOME = "\x1b[H"
ENTERED, LEFT = "\x1b[?1049h", "\x1b[?1049l"
PATIENCE_S = 60


class Terminal:
    """``pellucid ARGUMENTS`` in a terminal of its own."""

    def __init__(self, arguments: tuple[str, ...], environment: Mapping[str, str], columns: int, rows: int) -> None:
        self._master, slave = pty.openpty()
        self.output = ""
        self.resize(columns, rows)
        self.modes = termios.tcgetattr(slave)
        self.process = subprocess.Popen(
            [sys.executable, "-m", "pellucid", *arguments],
            stdin=slave,
            stdout=slave,
            stderr=slave,
            env=dict(environment),
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),  # so that its Ctrl-C is a signal
        )
        self._slave = slave

    def resize(self, columns: int, rows: int) -> None:
        self._rows = rows
        fcntl.ioctl(self._master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def press(self, keys: str) -> None:
        os.write(self._master, keys.encode())

    def screen(self) -> list[str]:
        """The lines of the last complete drawing, which has as many as the terminal."""
        drawings = (ESCAPES.sub("", drawing).split("\n") for drawing in reversed(self.output.split(HOME)[1:]))
        return next(([line.rstrip() for line in lines] for lines in drawings if len(lines) == self._rows), [])

    def until(self, words: str, *, patience: float = PATIENCE_S) -> list[str]:
        """Read until a drawing holds ``words``; returns its lines."""
        deadline = time.monotonic() + patience
        while not any(words in line for line in self.screen()):
            assert time.monotonic() < deadline, f"{words!r} did not come; the last drawing: {self.screen()}"
            self._read(0.1)
        return self.screen()

    def end(self) -> int:
        """Read to the end of the process; returns its status."""
        deadline = time.monotonic() + PATIENCE_S
        while self.process.poll() is None:
            assert time.monotonic() < deadline, f"it goes on; the last drawing: {self.screen()}"
            self._read(0.1)
        self._read(0.1)
        return self.process.returncode

    @property
    def restored(self) -> bool:
        """Whether the terminal's modes are those before, and its first screen and its cursor are back."""
        back = self.output.rfind(LEFT) > self.output.rfind(ENTERED) >= 0
        cursor = self.output.rfind("\x1b[?25h") > self.output.rfind("\x1b[?25l") >= 0
        return back and cursor and termios.tcgetattr(self._slave) == self.modes

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGKILL)
            self.process.wait()
        os.close(self._master)
        os.close(self._slave)

    def _read(self, seconds: float) -> None:
        while select.select([self._master], [], [], seconds)[0]:
            self.output += os.read(self._master, 65536).decode(errors="replace").replace("\r\n", "\n")
            seconds = 0


@contextmanager
def terminal(*arguments: str, environment: Mapping[str, str], columns: int = 80, rows: int = 24) -> Iterator[Terminal]:
    """`Terminal`, whose process is gone afterwards."""
    opened = Terminal(arguments, environment, columns, rows)
    try:
        yield opened
    finally:
        opened.close()
