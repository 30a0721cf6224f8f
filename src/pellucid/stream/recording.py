"""A watched engine, written down: JSON lines, the header first, then each message with the time it came."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
from msgspec import Struct

from pellucid.errors import JournalError
from pellucid.kv.veil import Show, Veil, plainly, veil_act, veil_snapshot
from pellucid.stream.messages import AnyMessage, Hello, Picture, Step, Watched

VERSION = 1
FLUSH_EVERY = 1.0
_PICTURE = b'{"message":"picture"'


class Header(Struct, frozen=True, kw_only=True):
    """The first line: what was watched, and from what Unix time on."""

    format: str = "pellucid.recording"
    version: int = VERSION
    watched: Watched
    time: float
    shows_identities: bool = False


class _Line(Struct, frozen=True):
    at: float
    said: msgspec.Raw


class Recorder:
    """Writes down what a `Reader` yields; nothing that goes wrong here stops the watching.

    Block identities and namespaces are hashes of what users brought along: unless ``show_identities``, they are
    written under a key that is thrown away, as `Journal.save` does it. ``stopped`` says why nothing more is
    written, None as long as all is well.

    Raises ``OSError`` if the file cannot be made.
    """

    def __init__(self, path: str | Path, hello: Hello, *, show_identities: bool = False) -> None:
        self.path = Path(path)
        self.stopped: str | None = None
        self.messages = 0
        self._show: Show = plainly if show_identities else Veil()
        self._encode = msgspec.json.Encoder().encode
        self._file = self.path.open("wb")
        self._flushed = time.monotonic()
        header = Header(watched=hello.watched, time=time.time(), shows_identities=show_identities)
        self._write(self._encode(header) + b"\n")
        self.flush()

    def take(self, message: AnyMessage, at: float | None = None) -> None:
        """Write ``message``, which came at Unix time ``at`` (now, if not given)."""
        if self.stopped is not None:
            return
        at = time.time() if at is None else at
        said = self._encode(self._veiled(message))
        self._write(b'{"at":%s,"said":%s}\n' % (self._encode(at), said))
        self.messages += 1
        if time.monotonic() - self._flushed > FLUSH_EVERY:
            self.flush()

    def flush(self) -> None:
        """Let the disk have it, and look whether the file is still there; `take` does so once a second."""
        self._flushed = time.monotonic()
        if self.stopped is not None:
            return
        try:
            self._file.flush()
            if not os.path.samestat(os.fstat(self._file.fileno()), self.path.stat()):
                self._stop("another file has taken its place")
        except OSError as error:
            self._stop(error.strerror or str(error))

    def close(self) -> None:
        """Write what is left."""
        self.flush()
        if self.stopped is None:
            self._file.close()

    def _write(self, line: bytes) -> None:
        try:
            self._file.write(line)
        except OSError as error:
            self._stop(error.strerror or str(error))

    def _stop(self, why: str) -> None:
        self.stopped = f"nothing more is recorded in {self.path}, after {self.messages:,} messages: {why}."
        with contextlib.suppress(OSError):
            self._file.close()  # it tries once more to write what it holds

    def _veiled(self, message: AnyMessage) -> AnyMessage:
        if isinstance(message, Picture):
            return msgspec.structs.replace(message, snapshot=veil_snapshot(message.snapshot, self._show))
        if isinstance(message, Step):
            return msgspec.structs.replace(message, acts=tuple(veil_act(act, self._show) for act in message.acts))
        return message


class Recording:
    """A file that a `Recorder` wrote, read line by line.

    ``cut_off`` is True once reading came to a last line that is not whole, as a recorder leaves it that was killed
    or had no more room. Raises `JournalError` for a file that is no recording or of another version.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self.cut_off = False
        with self.path.open("rb") as file:
            line = file.readline()
            self._start = file.tell()
        try:
            self.header = msgspec.json.decode(line, type=Header)
        except msgspec.MsgspecError as error:
            raise JournalError(f"{path} does not begin like a recording ({error}).") from error
        if (self.header.format, self.header.version) != ("pellucid.recording", VERSION):
            raise JournalError(
                f"{path} is {self.header.format} version {self.header.version}, "
                f"not pellucid.recording version {VERSION}."
            )

    def __iter__(self) -> Iterator[tuple[float, AnyMessage]]:
        """Each message with the Unix time at which it came."""
        yield from self._read(self._start)

    def since(self, time: float) -> Iterator[tuple[float, AnyMessage]]:
        """From the last picture that came no later than ``time`` (else the first) on: fold up to ``time`` and be there.

        Found by scanning the file once, without decoding what is passed over.
        """
        place = self._start
        for position, line in self._lines(self._start):
            if line.at > time:
                break
            if bytes(line.said).startswith(_PICTURE):
                place = position
        yield from self._read(place)

    def _read(self, place: int) -> Iterator[tuple[float, AnyMessage]]:
        decoder = msgspec.json.Decoder(AnyMessage)
        for position, line in self._lines(place):
            try:
                yield line.at, decoder.decode(line.said)
            except msgspec.MsgspecError as error:
                raise self._damaged(position, error) from error

    def _lines(self, place: int) -> Iterator[tuple[int, _Line]]:
        decoder = msgspec.json.Decoder(_Line)
        with self.path.open("rb") as file:
            file.seek(place)
            for line in file:
                if not line.endswith(b"\n"):
                    self.cut_off = True
                    return
                try:
                    yield place, decoder.decode(line)
                except msgspec.MsgspecError as error:
                    raise self._damaged(place, error) from error
                place += len(line)

    def _damaged(self, position: int, error: Exception) -> JournalError:
        return JournalError(f"{self.path}, from byte {position:,} on, is no message ({error}); the file is damaged.")


def load(path: str | Path) -> Recording:
    """The recording at ``path``: iterate over it. Raises `JournalError`."""
    return Recording(path)
