"""One connection of the publisher: how far its watcher is, and what is on its way there."""

from __future__ import annotations

import enum
import socket
from collections import deque
from typing import NamedTuple

MAX_BYTES = 4 << 20
MAX_STEPS = 10_000


class Phase(enum.Enum):
    """What a connection waits for."""

    ASKING = enum.auto()  # for its request to be complete (TCP)
    NEEDY = enum.auto()  # for a picture
    FOLLOWING = enum.auto()  # for the next step
    BEHIND = enum.auto()  # for its buffer to drain, as it was too slow
    LEAVING = enum.auto()  # for its buffer to drain, and then to be closed


class _Chunk(NamedTuple):
    data: bytes
    steps: int


class Watcher:
    """A connection that is written to as fast as it reads, and no faster.

    What waits to be sent is bounded: past ``MAX_BYTES`` or ``MAX_STEPS`` of step messages it is dropped, and once
    the rest has drained the watcher needs a picture again. ``dropped`` counts the steps that it will never see.
    """

    def __init__(self, connection: socket.socket, phase: Phase, since: float) -> None:
        self.connection = connection
        self.phase = phase
        self.since = since
        self.head = bytearray()  # of a request that is not complete yet
        self.wants_metrics = False
        self.dropped = 0
        self._chunks: deque[_Chunk] = deque()
        self._sent = 0  # bytes of the first chunk
        self._bytes = self._steps = 0  # of step messages that wait

    @property
    def pending(self) -> bool:
        """Whether anything waits to be sent."""
        return bool(self._chunks)

    def say(self, data: bytes) -> None:
        """Send something that is not to be dropped: a greeting, a picture, an end."""
        self._chunks.append(_Chunk(data, 0))

    def tell(self, data: bytes, steps: int) -> None:
        """Send ``steps`` step messages, unless this watcher has yet to get the picture that holds them."""
        if self.phase is Phase.FOLLOWING:
            self._chunks.append(_Chunk(data, steps))
            self._bytes += len(data)
            self._steps += steps
            if self._bytes > MAX_BYTES or self._steps > MAX_STEPS:
                self._drop()
        elif self.phase is Phase.BEHIND or (self.phase is Phase.NEEDY and self.dropped):
            self.dropped += steps

    def show(self, picture: bytes) -> None:
        """Send the picture that was needed; steps follow from here on."""
        self.say(picture)
        self.phase = Phase.FOLLOWING

    def write(self) -> None:
        """Send what the connection takes now. Raises ``OSError`` if it is broken."""
        while self._chunks:
            data, steps = self._chunks[0]
            try:
                self._sent += self.connection.send(memoryview(data)[self._sent :])
            except (BlockingIOError, InterruptedError):
                return
            if self._sent < len(data):
                return
            self._chunks.popleft()
            self._sent = 0
            if steps:
                self._bytes -= len(data)
                self._steps -= steps
        if self.phase is Phase.BEHIND:
            self.phase = Phase.NEEDY

    def _drop(self) -> None:
        """Forget the steps that wait, but for those that are half on their way."""
        kept = [chunk for place, chunk in enumerate(self._chunks) if not chunk.steps or (place == 0 and self._sent)]
        self.dropped += self._steps - sum(chunk.steps for chunk in kept)
        self._chunks = deque(kept)
        self._bytes = sum(len(chunk.data) for chunk in kept if chunk.steps)
        self._steps = sum(chunk.steps for chunk in kept)
        self.phase = Phase.BEHIND if kept else Phase.NEEDY
