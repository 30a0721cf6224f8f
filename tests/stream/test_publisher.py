"""Whatever happens to its watchers, the engine goes on; whatever a watcher misses, it ends up with the truth."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from pellucid.errors import FinishedRequest, StreamError, UnknownRequest
from pellucid.stream import watcher
from pellucid.stream.messages import End, Picture, Watched
from pellucid.stream.places import dial, engines
from pellucid.stream.publisher import MOST_WATCHERS, Publisher
from watched_engine import ForcedEngine
from watching import PATIENCE, EngineProcess, Watching, eventually

FOLLOWER = """
import sys
from pellucid.stream.live import Live
from pellucid.stream.messages import End
from pellucid.stream.reader import connect

reader = connect(sys.argv[1])
live = Live(reader.hello.watched)
print("watching", flush=True)
while not isinstance(message := reader.next(60), End):
    live.take(message)
print(live.dropped, live.snapshot.acts, flush=True)
"""


def follower(path: Path) -> subprocess.Popen[str]:
    """A watcher in a process of its own, which knows how much it missed once the engine says goodbye."""
    process = subprocess.Popen([sys.executable, "-c", FOLLOWER, str(path)], stdout=subprocess.PIPE, text=True)
    assert process.stdout
    assert process.stdout.readline() == "watching\n"
    return process


def test_nobody_watches_and_nothing_is_kept(engine: ForcedEngine) -> None:
    engine.load(50, random.Random(1))
    publisher = engine.broadcast.publisher
    assert not publisher.watching
    assert not publisher.wants_picture
    assert not publisher._queue


@pytest.mark.parametrize("asynchronous", [False, True])
def test_a_watcher_knows_what_the_engine_knows(runtime: Path, asynchronous: bool) -> None:
    engine = ForcedEngine(asynchronous=asynchronous)
    draw = random.Random(2)
    engine.load(30, draw)  # happened before anybody looked
    watching = Watching()
    assert watching.live.watched.pid == os.getpid()
    for _ in range(5):
        engine.load(40, draw)
        watching.catch_up(engine.kv.snapshot())
    live = [table.name for table in engine.kv.live_tables()]
    assert [watching.live.tables(name) for name in live] == [(engine.kv.table(name),) for name in live]
    for name in [*live, *watching.live.ended, *engine.broadcast._picture().lookups]:
        assert watching.live.explanation(name) == engine.kv.explain(name)
    engine.broadcast.publisher.close("that was it")
    watching.until(lambda live: live.goodbye is not None)
    assert watching.live.goodbye == "that was it"
    with pytest.raises(StreamError, match="said goodbye: that was it"):
        watching.reader.next(1)


def test_what_happens_between_two_steps_is_told_at_once(engine: ForcedEngine) -> None:
    engine.add("A", 10, 20)
    engine.step()
    with Watching().reader as reader:
        assert isinstance(reader.next(PATIENCE), Picture)
        engine.core.move(engine.kv.table("A")[0], 50)
        engine.add("B", 5, 5)
        engine.core.abort("A")
        told = [reader.next(PATIENCE) for _ in range(3)]
    assert [[type(act).__name__ for act in step.acts] for step in told] == [["Move"], ["Open"], ["Return", "Close"]]  # type: ignore[union-attr]
    assert [step.seq for step in told] == [told[0].seq, told[0].seq + 1, told[0].seq + 2]  # type: ignore[union-attr]


def test_ended_requests_are_remembered_with_their_last_tables(engine: ForcedEngine) -> None:
    engine.add("A", 10, 20)
    engine.step(2)
    watching = Watching()
    watching.until(lambda live: live.ready)
    table = engine.kv.table("A")
    engine.core.abort("A")
    watching.catch_up(engine.kv.snapshot())
    with pytest.raises(FinishedRequest, match="finished in step 2") as finished:
        watching.live.tables("A")
    assert finished.value.table == table
    assert watching.live.ended["A"].reason == "abort"
    with pytest.raises(UnknownRequest, match="no request is named 'B'"):
        watching.live.explanation("B")
    assert 0 <= watching.live.age(2, time.time()) < PATIENCE  # type: ignore[operator]
    engine.add("A", 6, 5)
    watching.catch_up(engine.kv.snapshot())
    assert watching.live.tables("A") == ((),)


def test_watchers_come_and_go_while_the_engine_runs(runtime: Path) -> None:
    """The races between the engine's thread and the teller's: a lost or doubled step makes an end that differs."""
    engine = ForcedEngine()
    draw = random.Random(3)
    running = threading.Thread(target=lambda: engine.load(1500, random.Random(4), pause=0.0005))
    running.start()
    watchings: list[Watching] = []
    while running.is_alive():
        if draw.random() < 0.4 or not watchings:
            watchings.append(Watching())
        if len(watchings) > 4:
            watchings.pop(draw.randrange(len(watchings))).reader.close()
        if draw.random() < 0.15:
            while watchings:  # nobody watches, until somebody does
                watchings.pop().reader.close()
        for watching in watchings:
            watching.take(draw.random() * 0.05)
    running.join()
    watchings.append(Watching())
    for watching in watchings:
        watching.catch_up(engine.kv.snapshot())
    engine.broadcast.publisher.close()


@pytest.mark.parametrize("seed", range(3))
def test_what_a_slow_watcher_misses_it_gets_as_a_picture(
    engine: ForcedEngine, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    monkeypatch.setattr(watcher, "MAX_BYTES", 8_192)
    draw = random.Random(seed)
    slow, quick = Watching(), Watching()
    eventually(lambda: len(engine.broadcast.publisher._watchers) == 2)
    engine.broadcast.publisher._watchers[0].connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4_096)
    for _ in range(8):
        for _ in range(draw.randint(1, 100)):
            engine.load(1, draw)
            time.sleep(0.001)
        for _ in range(draw.randint(0, 40)):
            slow.take(0.01)
        while quick.take(0.1):
            pass
    slow.catch_up(engine.kv.snapshot())
    quick.catch_up(engine.kv.snapshot())
    assert slow.live.dropped > 0


def test_a_stopped_reader_is_dropped_and_resynchronised(engine: ForcedEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watcher, "MAX_BYTES", 65_536)
    publisher = engine.broadcast.publisher
    stopped = follower(publisher.path)
    other = Watching()
    other.until(lambda live: live.ready)
    eventually(lambda: all(each.phase is watcher.Phase.FOLLOWING for each in publisher._watchers))
    os.kill(stopped.pid, signal.SIGSTOP)
    draw = random.Random(5)
    while not any(each.dropped for each in publisher._watchers):
        engine.load(20, draw)
        other.catch_up(engine.kv.snapshot())  # the other one is not affected
    engine.load(20, draw)
    os.kill(stopped.pid, signal.SIGCONT)
    eventually(lambda: all(each.phase is watcher.Phase.FOLLOWING and not each.pending for each in publisher._watchers))
    publisher.close()
    dropped, acts = map(int, stopped.communicate(timeout=PATIENCE)[0].split())
    assert dropped > 0
    assert acts == engine.kv.snapshot().acts


def test_a_killed_watcher_is_not_missed(engine: ForcedEngine) -> None:
    publisher = engine.broadcast.publisher
    killed, other = follower(publisher.path), Watching()
    other.until(lambda live: live.ready)
    killed.kill()
    killed.wait()
    engine.load(30, random.Random(6))
    other.catch_up(engine.kv.snapshot())
    eventually(lambda: len(publisher._watchers) == 1)
    other.reader.close()
    eventually(lambda: not publisher.watching and not publisher._watchers)


def test_garbage_and_silence_disturb_nobody(engine: ForcedEngine) -> None:
    publisher = engine.broadcast.publisher
    watching = Watching()
    with (
        socket.socket(socket.AF_UNIX) as silent,
        socket.socket(socket.AF_UNIX) as rude,
    ):
        silent.connect(str(publisher.path))
        rude.connect(str(publisher.path))
        rude.sendall(os.urandom(10_000))
        engine.load(30, random.Random(7))
        watching.catch_up(engine.kv.snapshot())
        eventually(lambda: len(publisher._watchers) == 2)  # the rude one was shown out


def test_more_watchers_than_there_is_room_for(engine: ForcedEngine) -> None:
    publisher = engine.broadcast.publisher
    watching = Watching()
    with contextlib.ExitStack() as crowd:
        for _ in range(MOST_WATCHERS - 1):
            each = crowd.enter_context(dial(publisher.path, PATIENCE))
            assert each.recv(1) != b""
        one_more = crowd.enter_context(dial(publisher.path, PATIENCE))
        assert one_more.recv(1) == b""
        engine.load(10, random.Random(8))
        watching.catch_up(engine.kv.snapshot())
    eventually(lambda: len(publisher._watchers) == 1)
    Watching().catch_up(engine.kv.snapshot())


def test_a_killed_engine_is_told_in_a_sentence(engine_process: EngineProcess) -> None:
    watching = Watching(engine_process.process.pid)
    watching.until(lambda live: live.ready)
    engine_process.kill()
    error = watching.to_the_end()
    assert (
        str(error)
        == f"the engine at {engine_process.path} is gone without a word: its process was killed, or it hung up."
    )
    assert engine_process.path.exists()
    assert engines() == []
    assert not engine_process.path.exists()


def test_an_engine_that_ends_says_so_and_removes_its_socket(engine_process: EngineProcess) -> None:
    with Watching().reader as reader:
        engine_process.do("quit")
        while not isinstance(message := reader.next(PATIENCE), End):
            pass
    assert message.reason == "the engine's process ended"
    engine_process.process.wait()
    assert not engine_process.path.exists()


def test_a_forked_child_neither_serves_nor_takes_the_socket_along(engine_process: EngineProcess) -> None:
    engine_process.do("load 20 1")
    watching = Watching()
    watching.until(lambda live: live.ready)
    child = int(engine_process.do("fork"))
    engine_process.do("load 20 2")
    watching.catch_up(engine_process.snapshot())
    engine_process.kill()  # the child lives on, and holds nothing open
    assert "gone without a word" in str(watching.to_the_end())
    assert engines() == []
    os.kill(child, signal.SIGKILL)


def test_a_picture_that_cannot_be_made_ends_the_watching_and_not_the_engine(runtime: Path) -> None:
    def broken() -> Picture:
        raise RuntimeError("no such attribute")

    publisher = Publisher(Watched(engine="broken", model="m", pid=os.getpid(), started=0.0), broken)
    watching = Watching(publisher.path)
    watching.until(lambda live: live.goodbye is not None)
    assert watching.live.goodbye == "watching it failed (RuntimeError: no such attribute)"
    publisher.publish(0.0, ())
    assert not publisher.watching
    assert not publisher.path.exists()
    publisher.close()
