"""Engines are found by themselves, and nobody else finds them."""

from __future__ import annotations

import os
import socket
import stat
import tempfile
from pathlib import Path

import pytest

from pellucid.errors import StreamError
from pellucid.stream.messages import Picture, Watched
from pellucid.stream.places import dial, engines, folder
from pellucid.stream.publisher import Publisher
from pellucid.stream.reader import connect
from watched_engine import ForcedEngine
from watching import EngineProcess, Watching


def publisher(pid: int, rank: int = 0) -> Publisher:
    def never() -> Picture:
        raise AssertionError("nobody stays for a picture")

    return Publisher(Watched(engine="pellucid", model="tiny", pid=pid, rank=rank, started=0.0), never)


def test_folder_and_socket_are_this_users_alone(engine: ForcedEngine) -> None:
    path = engine.broadcast.publisher.path
    assert path.parent == folder()
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


@pytest.mark.skipif(os.getuid() != 0 or not hasattr(socket, "SO_PEERCRED"), reason="only root can be somebody else")
def test_somebody_else_is_shown_out_even_if_the_doors_stand_open(monkeypatch: pytest.MonkeyPatch) -> None:
    with tempfile.TemporaryDirectory() as open_to_all:
        os.chmod(open_to_all, 0o755)
        monkeypatch.setenv("PELLUCID_RUNTIME_DIR", open_to_all)
        shown = publisher(os.getpid())
        shown.path.parent.chmod(0o755)
        shown.path.chmod(0o666)
        child = os.fork()
        if not child:
            os.setuid(65_534)
            os._exit(len(dial(shown.path, 10.0).recv(1)))
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0  # not a byte
        shown.close()


def test_one_engine_is_found_and_several_are_listed(runtime: Path) -> None:
    with pytest.raises(StreamError, match=r"no engine can be watched .*`PELLUCID_OBSERVE=1 vllm serve MODEL`"):
        connect()
    first = publisher(os.getpid())
    with connect() as reader:
        assert reader.hello.watched.model == "tiny"
    second = publisher(os.getpid(), rank=1)
    with pytest.raises(StreamError, match=r"2 engines can be watched, say which: .*rank 0.*-1\.sock"):
        connect()
    with pytest.raises(StreamError, match=rf"2 engines can be watched in process {os.getpid()}"):
        connect(os.getpid())
    with connect(second.path) as reader:
        assert reader.hello.watched.rank == 1
    assert [watched.rank for watched in engines()] == [0, 1]
    first.close()
    with connect(os.getpid()) as reader:
        assert reader.hello.watched.rank == 1
    second.close()
    assert list(folder().iterdir()) == []


def test_what_dead_processes_left_is_removed_and_nothing_else(engine_process: EngineProcess) -> None:
    alive = publisher(os.getpid())
    engine_process.kill()
    assert engine_process.path.exists()
    assert [watched.pid for watched in engines()] == [os.getpid()]
    assert sorted(folder().iterdir()) == [alive.path]
    alive.close()


def test_a_socket_that_a_dead_process_of_the_same_number_left_is_in_nobodys_way(engine_process: EngineProcess) -> None:
    engine_process.kill()
    again = publisher(engine_process.process.pid)
    assert again.path == engine_process.path
    assert [watched.model for watched in engines()] == ["tiny"]
    with pytest.raises(StreamError, match="another engine can be watched at"):
        publisher(engine_process.process.pid)
    again.close()


def test_a_folder_that_is_not_ours_is_refused(runtime: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    folder().symlink_to(elsewhere)
    for attempt in (lambda: publisher(os.getpid()), engines):
        with pytest.raises(StreamError, match="is no folder but something else, a link perhaps; remove it"):
            attempt()
    folder().unlink()
    folder().mkdir()
    if os.getuid() == 0:
        os.chown(folder(), 12345, -1)
        for attempt in (lambda: publisher(os.getpid()), engines):
            with pytest.raises(StreamError, match="belongs to user 12345 and not to you; set PELLUCID_RUNTIME_DIR"):
                attempt()


def test_a_path_too_long_for_a_socket_is_refused_in_a_sentence(runtime: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PELLUCID_RUNTIME_DIR", str(runtime / ("x" * 120)))
    with pytest.raises(StreamError, match=r"bytes and a socket's path at most 103; set PELLUCID_RUNTIME_DIR"):
        publisher(os.getpid())
    assert list(runtime.iterdir()) == []


@pytest.mark.parametrize(
    ("target", "sentence"),
    [
        ("alice", "'alice' is no process id, no socket's path and no http://host:port"),
        ("/nowhere/1.sock", "there is no socket at /nowhere/1.sock"),
        (4_000_000, "no engine in process 4000000 can be watched"),
        ("https://localhost:1", "an engine speaks plain HTTP"),
    ],
)
def test_targets_that_lead_nowhere(target: str | int, sentence: str) -> None:
    with pytest.raises(StreamError, match=sentence):
        connect(target)


def test_who_only_asks_for_the_name_costs_the_engine_nothing(engine: ForcedEngine) -> None:
    for _ in range(20):
        assert [watched.model for watched in engines()] == ["forced"]
    Watching().catch_up(engine.kv.snapshot())
