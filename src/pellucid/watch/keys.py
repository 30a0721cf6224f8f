"""Single keys from a terminal, without Enter."""

from __future__ import annotations

import os
import re
import select
import sys
import termios
import time
import tty
from types import TracebackType

KEY = re.compile(r"\x1b(?:\[[0-9;]*[A-Za-z~]|O[A-Za-z])|[^\x1b]")
NAMES = {
    "C": "right",
    "D": "left",
    "H": "home",
    "F": "end",
    "1~": "home",
    "7~": "home",
    "4~": "end",
    "8~": "end",
}
QUIT = "q"


class Keys:
    """A context in which stdin gives its keys at once; outside of it the terminal is as it was.

    Where stdin is no terminal there are no keys, and `read` only waits.
    """

    def __init__(self) -> None:
        self._fd = sys.stdin.fileno() if sys.stdin and sys.stdin.isatty() else None
        self._begun = ""

    def __enter__(self) -> Keys:
        if self._fd is not None:
            self._before = termios.tcgetattr(self._fd)
            tty.setcbreak(self._fd)
            modes = termios.tcgetattr(self._fd)
            modes[6][termios.VSUSP] = b"\0"  # stopping would leave the shell on our screen, without echo
            termios.tcsetattr(self._fd, termios.TCSANOW, modes)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._fd is not None:
            termios.tcsetattr(self._fd, termios.TCSAFLUSH, self._before)

    def read(self, timeout: float) -> list[str]:
        """The keys that came within ``timeout`` seconds: at once if there are any, else none when time is up."""
        if self._fd is None:
            time.sleep(timeout)
            return []
        if not select.select([self._fd], [], [], timeout)[0]:
            return []
        try:
            came = os.read(self._fd, 1024)
        except OSError:  # the terminal is gone
            came = b""
        return self._named(came.decode(errors="replace")) if came else [QUIT]

    def _named(self, text: str) -> list[str]:
        """``text`` as keys; the beginning of a sequence that is still under way waits for its end."""
        text = self._begun + text
        found = list(KEY.finditer(text))
        rest = text[found[-1].end() :] if found else text
        self._begun = rest if len(rest) < 8 else ""
        return [NAMES.get(key[0][2:], "") if key[0][0] == "\x1b" else key[0] for key in found]
