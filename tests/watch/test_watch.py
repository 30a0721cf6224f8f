"""A real engine, watched from other processes over a real socket."""

from __future__ import annotations

import json
import signal
import tempfile
from pathlib import Path
from typing import Any

import pytest

from pellucid.stream.messages import Picture, Watched
from pellucid.stream.publisher import Publisher
from view.pictures import snapshot
from watch.driven import Driven, Run, driven, line_of, pellucid, watching


def tables_of(told: Any) -> dict[str, list[int]]:
    return {request["name"]: request["tables"][0] for request in told["requests"]}


def test_once_shows_each_request_and_its_blocks(folder: Path, engine: Driven) -> None:
    engine.add("alice", 220, 13)
    engine.step(2)
    engine.add("bob", 220, 9)
    engine.add("carol", 100, 145, 5)  # does not fit beside them
    tables = engine.step(1)
    done = pellucid(folder, "watch", "--once", "--json")
    text = pellucid(folder, "watch", "--once", str(engine.process.pid))
    for name in ("alice", "bob", "carol"):
        engine.abort(name)
    assert (done.returncode, done.stderr) == (0, "")
    (told,) = [json.loads(line) for line in done.stdout.splitlines()]
    assert tables_of(told) == tables
    assert set(tables["alice"]) & set(tables["bob"])
    cached = {request["name"]: request["cached_tokens"] for request in told["requests"]}
    assert cached == {"alice": 0, "bob": 8, "carol": None}
    assert told["watched"]["pid"] == engine.process.pid
    assert told["totals"]["held"] == len(set().union(*tables.values()))
    assert sum(told["totals"][state] for state in ("reserved", "held", "cached", "free", "fenced")) == 40
    assert "\x1b" not in text.stdout
    rows = {line.split()[1]: line.split()[2:] for line in text.stdout.splitlines() if line[:2] in ("A ", "B ", "C ")}
    assert rows["bob"][:6] == ["running", "9", "3", "3", "8", "0"]
    assert rows["carol"] == ["waiting", "0", "0", "0", "-", "0", "-"]


def test_a_line_of_json_for_every_step(run: Run) -> None:
    assert run.told[0]["requests"][0]["state"] == "waiting"
    assert [tables_of(line) for line in run.told[1:]] == run.tables
    assert run.tables[0]
    assert not run.tables[-1]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full here")
def test_a_full_disk_stops_the_recording_and_nothing_else(folder: Path, engine: Driven) -> None:
    engine.add("eve", 150, 13)
    watcher = watching(folder, "--json", "--record", "/dev/full")
    line_of(watcher)
    engine.step(1)
    told = line_of(watcher)
    engine.abort("eve")
    last = line_of(watcher)
    watcher.send_signal(signal.SIGINT)
    watcher.communicate(timeout=30)
    assert tables_of(told)["eve"]
    assert not last["requests"]
    assert any("nothing more is recorded in /dev/full" in note for note in last["notes"])


@pytest.mark.parametrize("killed", [False, True])
def test_the_end_of_an_engine_is_said(killed: bool) -> None:
    with tempfile.TemporaryDirectory(prefix="pw-", dir="/tmp") as path, driven(Path(path)) as engine:
        engine.add("alice", 1, 5)
        watcher = watching(Path(path))
        assert watcher.stdout
        assert watcher.stdout.readline().startswith("pellucid ")
        engine.process.kill() if killed else engine.end()
        out, err = watcher.communicate(timeout=30)
        assert err == ""
        assert watcher.returncode == int(killed)
        said = next(line for line in out.splitlines() if line.startswith("nothing more comes: "))
        assert ("the engine's process ended" in said) is not killed


def test_nobody_there_and_several_there(monkeypatch: pytest.MonkeyPatch) -> None:
    with tempfile.TemporaryDirectory(prefix="pw-", dir="/tmp") as path:
        folder = Path(path)
        nobody = pellucid(folder, "watch", "--once")
        assert nobody.returncode == 2
        assert "no engine can be watched" in nobody.stderr
        monkeypatch.setenv("PELLUCID_RUNTIME_DIR", path)
        cores = [core("m", 1000, 0), core("m", 1001, 1)]
        try:
            both = [json.loads(line) for line in pellucid(folder, "watch", "--once", "--json").stdout.splitlines()]
            assert [line["watched"]["rank"] for line in both] == [0, 1]  # the two cores of one engine
            refused = pellucid(folder, "watch", "--record", str(folder / "x"))
            assert (refused.returncode, "--record writes one engine core" in refused.stderr) == (2, True)
            cores.append(core("another", 1002, 0))
            several = pellucid(folder, "watch", "--once")
            assert several.returncode == 2
            assert all(str(pid) in several.stderr for pid in (1000, 1001, 1002))
            named = pellucid(folder, "watch", "--once", "--json", "1002", "1000").stdout.splitlines()
            assert [json.loads(line)["watched"]["pid"] for line in named] == [1002, 1000]
        finally:
            for publisher in cores:
                publisher.close()


def core(model: str, pid: int, rank: int) -> Publisher:
    """An engine core at rest, told from here."""
    watched = Watched(engine="e", model=model, pid=pid, rank=rank, started=0.0)
    return Publisher(watched, lambda: Picture(time=1.0, snapshot=snapshot(20, {"a": [1, 2]})))
