"""Watching an engine from another process: a connection, and what comes over it."""

from __future__ import annotations

import os
import socket
import urllib.parse
from collections.abc import Callable
from pathlib import Path
from types import TracebackType

from pellucid.errors import StreamError
from pellucid.stream.frames import Inbox
from pellucid.stream.messages import PROTOCOL, AnyMessage, End, Hello, Picture, Step, Watched
from pellucid.stream.places import dial, folder, places

LONGEST_HEAD = 8_192


class Reader:
    """An engine's messages, in order: a `Picture`, then each `Step`, now and then a new `Picture`, an `End`.

    ``hello`` is what the engine said first. Close it, or use it as a context.
    """

    def __init__(self, connection: socket.socket, source: str, timeout: float, begun: bytes = b"") -> None:
        self._connection = connection
        self._inbox = Inbox(connection, source, begun)
        self._source = source
        self._seq: int | None = None
        self._ended: str | None = None
        self.hello: Hello = self._inbox.hello(timeout)
        if self.hello.protocol != PROTOCOL:
            raise StreamError(
                f"{source} speaks protocol {self.hello.protocol}, and this Pellucid protocol {PROTOCOL}; "
                "use the same version on both sides."
            )

    def next(self, timeout: float | None = None) -> AnyMessage | None:
        """The next message, or None if none came within ``timeout`` seconds (None: wait for it).

        Raises `StreamError`, in a sentence that says what happened, if the connection broke, if a step is
        missing, or after an `End`.
        """
        if self._ended is not None:
            raise StreamError(f"{self._source} said goodbye: {self._ended}.")
        message = self._inbox.next(timeout)
        match message:
            case Picture():
                self._seq = message.seq
            case Step():
                self._follow(message)
            case End():
                self._ended = message.reason
        return message

    def close(self) -> None:
        """Stop watching; the engine takes no notice."""
        self._connection.close()

    def __enter__(self) -> Reader:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _follow(self, step: Step) -> None:
        if self._seq is None:
            raise StreamError(f"{self._source} told a step before it showed a picture.")
        if step.seq != self._seq + 1:
            raise StreamError(f"{self._source} went from step message {self._seq} to {step.seq}; connect again.")
        self._seq = step.seq


def connect(target: str | int | Path | None = None, timeout: float = 5.0) -> Reader:
    """Watch an engine: the only one there is, or the one of a process id, a socket's path or ``http://host:port``.

    Raises `StreamError` if there is none, if there are several, or if it does not answer within ``timeout`` seconds.
    """
    text = "" if target is None else str(target)
    if text.startswith("http://"):
        return _connect_http(text, timeout)
    if text.startswith("https://"):
        raise StreamError(f"{text}: an engine speaks plain HTTP; go through a tunnel, or write http://.")
    if isinstance(target, Path) or "/" in text or text.endswith(".sock"):
        return _connect_local(Path(text), timeout)
    if text and not text.isdecimal():
        raise StreamError(f"{text!r} is no process id, no socket's path and no http://host:port.")
    return _connect_local(_only(int(text) if text else None), timeout)


def _only(pid: int | None) -> Path:
    there = places()
    found = [place for place in there if pid is None or place.watched.pid == pid]
    if len(found) == 1:
        return found[0].path
    whose = "" if pid is None else f" in process {pid}"
    if not found and there:
        raise StreamError(
            f"no engine{whose} can be watched; there is {'; '.join(_told(each.watched) for each in there)}."
        )
    if not found:
        raise StreamError(
            f"no engine{whose} can be watched (none answers in {folder()}); start one with `pellucid vllm serve "
            "MODEL`, with `PELLUCID_OBSERVE=1 vllm serve MODEL`, or PELLUCID_OBSERVE=1 and a program that makes a "
            "pellucid.LLM, and wait until it is loaded: a vLLM says `observing` then."
        )
    listed = "; ".join(f"{_told(place.watched)}: {place.path}" for place in found)
    raise StreamError(f"{len(found)} engines can be watched{whose}, say which: {listed}.")


def _told(watched: Watched) -> str:
    return f"{watched.engine} with {watched.model}, process {watched.pid}, rank {watched.rank}"


def _connect_local(path: Path, timeout: float) -> Reader:
    try:
        connection = dial(path, timeout)
    except FileNotFoundError:
        raise StreamError(f"there is no socket at {path}; its engine has ended, or never was.") from None
    except ConnectionRefusedError:
        raise StreamError(f"nobody answers at {path}: its engine was killed.") from None
    except OSError as error:
        raise StreamError(f"{path} cannot be watched: {error.strerror or error}.") from error
    return _kept(connection, lambda: Reader(connection, f"the engine at {path}", timeout))


def _connect_http(url: str, timeout: float) -> Reader:
    parts = urllib.parse.urlsplit(url)
    token = os.environ.get("PELLUCID_TOKEN")
    if not parts.hostname or parts.port is None:
        raise StreamError(f"{url} names no host and port; write http://host:port.")
    if not token:
        raise StreamError(f"{url} can only be watched with its token; set PELLUCID_TOKEN to it.")
    try:
        connection = socket.create_connection((parts.hostname, parts.port), timeout)
    except OSError as error:
        raise StreamError(f"{url} cannot be reached: {error.strerror or error}.") from error

    def start() -> Reader:
        begun = _request(connection, url, token)
        return Reader(connection, f"the engine at {url}", timeout, begun)

    return _kept(connection, start)


def _request(connection: socket.socket, url: str, token: str) -> bytes:
    """Ask for the stream; returns what has come of it already."""
    host = urllib.parse.urlsplit(url).netloc.rpartition("@")[2]
    try:
        connection.sendall(f"GET /stream HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {token}\r\n\r\n".encode())
        answer = bytearray()
        while b"\r\n\r\n" not in answer:
            arrived = connection.recv(4_096)
            if not arrived or len(answer) > LONGEST_HEAD:
                raise StreamError(f"{url} is no engine of Pellucid: it does not answer as one does.")
            answer += arrived
    except OSError as error:
        raise StreamError(f"{url} did not answer: {error.strerror or error}.") from error
    head, _, begun = bytes(answer).partition(b"\r\n\r\n")
    status = head.split(b"\r\n")[0].split()[1:2]
    if status == [b"401"]:
        raise StreamError(f"{url} does not accept the token in PELLUCID_TOKEN.")
    if status != [b"200"]:
        raise StreamError(f"{url} is no engine of Pellucid: it answers {head.splitlines()[0][:80]!r}.")
    return begun


def _kept(connection: socket.socket, start: Callable[[], Reader]) -> Reader:
    """``start()``; the connection is closed if that fails."""
    try:
        return start()
    except BaseException:
        connection.close()
        raise
