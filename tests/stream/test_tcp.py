"""Over TCP an engine shows itself to whoever has the token."""

from __future__ import annotations

import os
import random
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from pellucid.errors import StreamError
from pellucid.stream import doorman
from pellucid.stream.messages import Picture, Watched
from pellucid.stream.places import folder
from pellucid.stream.publisher import Publisher
from pellucid.stream.reader import connect
from watched_engine import ForcedEngine
from watching import PATIENCE, Watching, eventually

TOKEN = "correct horse battery"


@pytest.fixture
def remote(runtime: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ForcedEngine]:
    monkeypatch.setenv("PELLUCID_TOKEN", TOKEN)
    monkeypatch.setenv("PELLUCID_LISTEN", "127.0.0.1:0")
    engine = ForcedEngine()
    yield engine
    engine.broadcast.publisher.close()


def url(engine: ForcedEngine) -> str:
    return f"http://127.0.0.1:{engine.broadcast.publisher.port}"


def ask(engine: ForcedEngine, request: bytes) -> bytes:
    """Everything that is answered."""
    port = engine.broadcast.publisher.port
    assert port
    with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE) as connection:
        connection.sendall(request)
        answer = b""
        try:
            while arrived := connection.recv(4_096):
                answer += arrived
        except ConnectionResetError:
            pass
        return answer


def get(engine: ForcedEngine, path: str, token: str = TOKEN) -> bytes:
    return ask(engine, f"GET {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}\r\n\r\n".encode())


def test_the_same_stream_over_tcp(remote: ForcedEngine) -> None:
    draw = random.Random(1)
    remote.load(20, draw)
    far, near = Watching(url(remote)), Watching()
    for _ in range(3):
        remote.load(20, draw)
        far.catch_up(remote.kv.snapshot())
        near.catch_up(remote.kv.snapshot())


def test_metrics_of_an_engine_at_rest(remote: ForcedEngine) -> None:
    remote.add("A", 10, 20)
    remote.step()
    head, _, body = get(remote, "/metrics").decode().partition("\r\n\r\n")
    assert head.startswith("HTTP/1.1 200 OK")
    assert f"Content-Length: {len(body)}" in head
    assert 'pellucid_blocks{pool="kv",state="held"} 3\n' in body
    eventually(lambda: not remote.broadcast.publisher.watching)


@pytest.mark.parametrize(
    ("request_", "status"),
    [
        (b"GET /stream HTTP/1.1\r\n\r\n", b"401"),
        (b"GET /metrics HTTP/1.1\r\nAuthorization: Bearer \r\n\r\n", b"401"),
        (b"GET /stream HTTP/1.1\r\nAuthorization: Bearer correct horse batterx\r\n\r\n", b"401"),
        (b"GET /stream HTTP/1.1\r\nAuthorization: Bearer \xff\xfe\r\n\r\n", b"401"),
        (b"POST /nowhere HTTP/1.1\r\n\r\n", b"401"),
        (b"GET /nowhere HTTP/1.1\r\nAuthorization: Bearer correct horse battery\r\n\r\n", b"404"),
        (b"POST /stream HTTP/1.1\r\nAuthorization: Bearer correct horse battery\r\n\r\n", b"405"),
        (b"hello\r\n\r\n", b"400"),
        (b"\x16\x03\x01\r\n\r\n", b"400"),
    ],
)
def test_whoever_does_not_ask_properly_sees_nothing(remote: ForcedEngine, request_: bytes, status: bytes) -> None:
    answer = ask(remote, request_)
    assert answer.startswith(b"HTTP/1.1 " + status)
    assert answer.endswith(b"\r\n\r\n")
    assert b"forced" not in answer
    assert not remote.broadcast.publisher.watching


def test_a_request_without_an_end_is_cut_off(remote: ForcedEngine) -> None:
    assert ask(remote, b"GET /stream HTTP/1.1\r\nX: " + b"x" * 100_000) == b""


def test_who_says_nothing_is_shown_out(remote: ForcedEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doorman, "LONGEST_WAIT", 0.1)
    assert ask(remote, b"GET /stream") == b""


def test_the_wrong_token_is_told_in_a_sentence(remote: ForcedEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PELLUCID_TOKEN", "incorrect horse battery")
    with pytest.raises(StreamError, match="does not accept the token in PELLUCID_TOKEN"):
        connect(url(remote))
    monkeypatch.delenv("PELLUCID_TOKEN")
    with pytest.raises(StreamError, match="can only be watched with its token"):
        connect(url(remote))


@pytest.mark.parametrize(
    ("listen", "token", "sentence"),
    [
        ("127.0.0.1:0", None, "needs a token of at least 16 characters in PELLUCID_TOKEN, and it has 0; nothing was"),
        ("127.0.0.1:0", "short", "and it has 5; nothing was opened"),
        ("8090", TOKEN, "'8090' is no address to listen at; write host:port"),
        ("127.0.0.1:http", TOKEN, "is no address to listen at"),
        ("192.0.2.1:8090", TOKEN, "nothing can listen at 192.0.2.1:8090"),
    ],
)
def test_without_a_token_or_an_address_nothing_is_opened(
    runtime: Path, listen: str, token: str | None, sentence: str
) -> None:
    watched = Watched(engine="e", model="m", pid=os.getpid(), started=0.0)
    with pytest.raises(StreamError, match=sentence):
        Publisher(watched, lambda: Picture(time=0.0, snapshot=None), listen=listen, token=token)  # type: ignore[arg-type]
    assert not folder().exists() or list(folder().iterdir()) == []


def test_what_is_no_engine_is_told_from_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PELLUCID_TOKEN", TOKEN)
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"http://127.0.0.1:{server.getsockname()[1]}"

        def answer() -> None:
            connection, _ = server.accept()
            with connection:
                connection.recv(4_096)
                connection.sendall(b"HTTP/1.1 404 Not Found\r\n\r\n")

        threading.Thread(target=answer).start()
        with pytest.raises(StreamError, match=r"is no engine of Pellucid: it answers b'HTTP/1\.1 404 Not Found'"):
            connect(address)
