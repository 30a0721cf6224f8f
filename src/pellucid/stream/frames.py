"""Messages on a connection: four bytes of length, big-endian, then the message in msgpack."""

from __future__ import annotations

import socket
import time

import msgspec

from pellucid.errors import StreamError
from pellucid.stream.messages import AnyMessage, Hello

MAX_FRAME = 1 << 28
"""A picture takes some 45 bytes a block: this is more than five million blocks."""

_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(AnyMessage)


def frame(message: AnyMessage) -> bytes:
    """``message`` as it travels."""
    body = _encoder.encode(message)
    return len(body).to_bytes(4, "big") + body


class Inbox:
    """The receiving end of a connection: bytes in, whole messages out.

    ``source`` names the other end in error messages; ``begun`` are bytes that were read already.
    """

    def __init__(self, connection: socket.socket, source: str, begun: bytes = b"") -> None:
        self._connection = connection
        self._source = source
        self._bytes = bytearray(begun)

    def next(self, timeout: float | None = None) -> AnyMessage | None:
        """The next message, or None if none is complete after ``timeout`` seconds (None: wait for it).

        Raises `StreamError` if the connection broke, or carries something else than messages.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        while (message := self._whole()) is None:
            left = None if deadline is None else max(0.0, deadline - time.monotonic())
            self._connection.settimeout(left)  # 0 means: only what is there already
            try:
                arrived = self._connection.recv(1 << 18)
            except (TimeoutError, BlockingIOError):
                return None
            except OSError as error:
                raise StreamError(f"the connection to {self._source} broke: {error.strerror or error}.") from error
            if not arrived:
                raise StreamError(f"{self._source} is gone without a word: its process was killed, or it hung up.")
            self._bytes += arrived
        return message

    def hello(self, timeout: float) -> Hello:
        """The first message. Raises `StreamError` if it does not come within ``timeout`` seconds or is no `Hello`."""
        first = self.next(timeout)
        if first is None:
            raise StreamError(
                f"{self._source} did not answer within {timeout:g} s: its process is stopped or busy; try again."
            )
        if not isinstance(first, Hello):
            raise StreamError(f"{self._source} does not begin as an engine of Pellucid does.")
        return first

    def _whole(self) -> AnyMessage | None:
        buffer = self._bytes
        if len(buffer) < 4:
            return None
        end = 4 + int.from_bytes(buffer[:4], "big")
        if end - 4 > MAX_FRAME:
            raise StreamError(
                f"{self._source} announced a message of {end - 4:,} bytes, over the limit of {MAX_FRAME:,}: "
                "it is no engine of Pellucid."
            )
        if len(buffer) < end:
            return None
        try:
            message = _decoder.decode(memoryview(buffer)[4:end].tobytes())
        except msgspec.MsgspecError as error:
            raise StreamError(
                f"{self._source} said something that this Pellucid does not understand ({error}); "
                "use the same version on both sides."
            ) from error
        del buffer[:end]
        return message
