"""One engine core that is watched: its messages folded, and what became of the connection."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from pellucid.errors import ConfigError, StreamError
from pellucid.lang import Sentence, say
from pellucid.stream import Live, Reader, Recorder, connect, places
from pellucid.stream.messages import AnyMessage, End, Step
from pellucid.watch.pace import Pace
from pellucid.watch.scene import Scene

FIRST_PICTURE_S = 30.0
"""An engine in the middle of a long step gives its picture after it."""


class Feed:
    """Reads from ``reader``, in a thread of its own after `start`, and writes what comes to ``recorder``.

    ``version`` counts the messages. ``status`` is 0 unless the engine was lost, or the recording is not whole.
    """

    def __init__(self, reader: Reader, recorder: Recorder | None = None) -> None:
        self.version = 0
        self.status = 0
        self._reader = reader
        self._recorder = recorder
        self._live = Live(reader.watched)
        self._pace = Pace()
        self._arrived = 0.0
        self._ended: str | None = None
        self._notes: list[Sentence] = []
        self._lock = threading.Lock()

    @property
    def goes_on(self) -> bool:
        """Whether more may come."""
        return self._ended is None

    def start(self) -> None:
        """Take whatever comes from now on."""
        threading.Thread(target=self._run, name="pellucid-watch", daemon=True).start()

    def wait_for_picture(self) -> None:
        """Returns with something to show. Raises `StreamError` if nothing comes."""
        deadline = time.monotonic() + FIRST_PICTURE_S
        while self.version == 0:
            self.take(max(0.0, deadline - time.monotonic()))
            if self._ended is not None:
                raise StreamError(f"{self._ended}")
            if time.monotonic() > deadline:
                raise StreamError(
                    f"the engine in process {self._reader.watched.pid} gave no picture within {FIRST_PICTURE_S:g} s: "
                    "it is stopped, or in a very long step; try again."
                )

    def take(self, timeout: float) -> bool:
        """Take the next message that comes within ``timeout`` seconds; returns whether there is something new."""
        try:
            message = self._reader.next(timeout)
        except StreamError as error:
            self.status = 1
            self._ended = str(error)
            return True
        if message is None:
            return False
        with self._lock:
            self._fold(message)
        self._record(message)
        return True

    def scene(self) -> Scene:
        """What there is to see now."""
        with self._lock:
            ...
