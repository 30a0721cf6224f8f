"""Ctrl-C that waits for the end of a step."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def interrupts_wait() -> Iterator[None]:
    """Inside, a first Ctrl-C is held back until the end, a second one strikes at once.

    Only Python's own handler is held back, and only in the main thread, the only one that has it.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    if signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield
        return
    held_back = False

    def hold_back(signum: int, frame: FrameType | None) -> None:
        nonlocal held_back
        if held_back:
            raise KeyboardInterrupt
        held_back = True

    signal.signal(signal.SIGINT, hold_back)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if held_back:
        raise KeyboardInterrupt
