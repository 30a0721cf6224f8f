"""What was watched can be watched again; what goes wrong with the file is said and harms nobody."""

from __future__ import annotations

import os
import random
import shutil
from base64 import b64encode
from pathlib import Path

import msgspec
import pytest

from pellucid.engine.broadcast import Broadcast
from pellucid.errors import JournalError
from pellucid.kv import Snapshot
from pellucid.kv.identity import ROOT, identity, namespace, space_id
from pellucid.plan import Request, SamplingParams
from pellucid.stream.live import Live
from pellucid.stream.messages import Hello, Picture, Step, Watched
from pellucid.stream.places import dial
from pellucid.stream.recording import Recorder, load
from pellucid.stream.watcher import Phase
from watched_engine import ForcedEngine
from watching import Watching, eventually

HELLO = Hello(Watched(engine="pellucid", model="m", pid=1, started=0.0))


def without_identities(snapshot: Snapshot) -> object:
    """Equal for two snapshots that differ in what their identities are and not in who has one."""
    (pool,) = snapshot.pools
    return (
        [getattr(snapshot, name) for name in snapshot.__struct_fields__ if name != "pools"],
        [getattr(pool, name) for name in pool.__struct_fields__ if name != "identities"],
        pool.states,
    )


def record(engine: ForcedEngine, path: Path, steps: int = 60, **options: bool) -> list[float]:
    """Watch and record ``steps`` steps and a second picture after half of them; when each message came: 1, 2, …"""
    watching = Watching()
    recorder = Recorder(path, watching.reader.hello, **options)
    times: list[float] = []

    def watch() -> None:
        while not watching.live.ready or watching.live.snapshot != engine.kv.snapshot():
            message = watching.reader.next(30)
            assert message is not None
            watching.live.take(message)
            times.append(float(len(times) + 1))
            recorder.take(message, times[-1])

    watch()
    engine.load(steps // 2, random.Random(1))
    watch()
    times.append(float(len(times) + 1))
    recorder.take(Picture(seq=watching.reader._seq or 0, time=0.0, snapshot=engine.kv.snapshot()), times[-1])
    engine.load(steps // 2, random.Random(2))
    watch()
    recorder.close()
    assert recorder.stopped is None
    assert recorder.messages == len(times)
    return times


def add_a_canary(engine: ForcedEngine) -> list[bytes]:
    """Run a request that nobody may know anything about; what must not be found, in every form it could have."""
    canary, salt = 912_345_678, "a salt like no other"
    tokens = tuple(range(canary, canary + 8))
    sampling = SamplingParams(temperature=0, max_tokens=3)
    engine.core.add(Request(name="A", prompt=tokens, sampling=sampling, salt=salt))
    engine.step(4)
    space = namespace(salt, None)
    hashes = [space_id(space), identity(ROOT, tokens[:4], space)]
    assert hashes[1] in engine.kv.snapshot().pool.identities
    words = [salt.encode(), b64encode(salt.encode()), str(canary + 1).encode(), msgspec.msgpack.encode(canary + 1)]
    return [*words, *hashes, *(form for each in hashes for form in (b64encode(each), each.hex().encode()))]


def replay(messages: object, until: float = float("inf")) -> Live:
    live = Live(HELLO.watched)
    for at, message in messages:  # type: ignore[attr-defined]
        if at > until:
            break
        live.take(message)
    return live


@pytest.mark.parametrize("shown", [False, True])
def test_a_recording_tells_the_same_story(engine: ForcedEngine, tmp_path: Path, shown: bool) -> None:
    engine.load(20, random.Random(0))
    times = record(engine, tmp_path / "r", show_identities=shown)
    recording = load(tmp_path / "r")
    assert recording.header.watched.model == "forced"
    assert [at for at, _ in recording] == times
    end, truth = replay(recording).snapshot, engine.kv.snapshot()
    assert without_identities(end) == without_identities(truth)
    assert (end == truth) is shown
    assert not recording.cut_off


def test_seeking_comes_to_the_same_as_playing(engine: ForcedEngine, tmp_path: Path) -> None:
    times = record(engine, tmp_path / "r")
    recording = load(tmp_path / "r")
    for until in [0.0, *times[:: len(times) // 12], times[-1] + 1]:
        played, sought = replay(recording, until), replay(recording.since(until), until)
        assert played.ready == sought.ready
        if played.ready:
            assert played.snapshot == sought.snapshot
    assert isinstance(next(recording.since(times[-1]))[1], Picture)
    assert next(recording.since(times[-1]))[0] > times[0]  # it starts at the second picture


def test_no_token_no_salt_and_no_identity_is_in_a_recording(engine: ForcedEngine, tmp_path: Path) -> None:
    watching = Watching()
    recorder = Recorder(tmp_path / "r", watching.reader.hello)
    secrets = add_a_canary(engine)
    while not watching.live.ready or watching.live.snapshot != engine.kv.snapshot():
        message = watching.reader.next(30)
        assert message is not None
        watching.live.take(message)
        recorder.take(message)
    recorder.take(Step(seq=99, time=0.0, acts=tuple(engine.kv.journal)))  # whatever was in the picture, as acts too
    recorder.close()
    text = (tmp_path / "r").read_bytes()
    assert b'"publish"' in text
    assert not [secret for secret in secrets if secret in text]


def test_nothing_of_it_leaves_the_process_at_all(engine: ForcedEngine) -> None:
    broadcast = Broadcast(engine.kv, "veiled")
    with dial(broadcast.publisher.path, timeout=30) as connection:
        heard = connection.recv(1 << 16)
        eventually(lambda: [each.phase for each in broadcast.publisher._watchers] == [Phase.FOLLOWING])
        with broadcast:
            secrets = add_a_canary(engine)
        broadcast.publisher.close()
        while arrived := connection.recv(1 << 16):
            heard += arrived
    assert b"publish" in heard
    assert not [secret for secret in secrets if secret in heard]


def test_a_recording_that_was_cut_off_is_read_up_to_there(engine: ForcedEngine, tmp_path: Path) -> None:
    times = record(engine, tmp_path / "r")
    whole = (tmp_path / "r").read_bytes()
    (tmp_path / "r").write_bytes(whole[:-40])
    recording = load(tmp_path / "r")
    assert [at for at, _ in recording] == times[:-1]
    assert recording.cut_off


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (b"", "does not begin like a recording"),
        (b'{"format":"pellucid.journal"}\n', "does not begin like a recording"),
        (
            b'{"format":"pellucid.recording","version":9,"time":0,"watched":'
            b'{"engine":"e","model":"m","pid":1,"started":0}}\n',
            "is pellucid.recording version 9, not pellucid.recording version 1",
        ),
    ],
)
def test_what_is_no_recording_is_refused(tmp_path: Path, content: bytes, sentence: str) -> None:
    (tmp_path / "r").write_bytes(content)
    with pytest.raises(JournalError, match=sentence):
        load(tmp_path / "r")


def test_damage_in_the_middle_is_named(engine: ForcedEngine, tmp_path: Path) -> None:
    record(engine, tmp_path / "r")
    lines = (tmp_path / "r").read_bytes().splitlines(keepends=True)
    lines[5] = b'{"at":5.0,"said":{"message":"nonsense"}}\n'
    (tmp_path / "r").write_bytes(b"".join(lines))
    with pytest.raises(JournalError, match=rf"from byte {sum(map(len, lines[:5])):,} on, is no message"):
        list(load(tmp_path / "r"))


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no device that is always full")
def test_a_full_disk_stops_the_recording_and_not_the_watching(engine: ForcedEngine) -> None:
    watching = Watching()
    recorder = Recorder("/dev/full", watching.reader.hello)
    watching.until(lambda live: live.ready)
    for seq in range(3):
        recorder.take(Step(seq=seq, time=0.0, acts=()))
    assert recorder.stopped == "nothing more is recorded in /dev/full, after 0 messages: No space left on device."
    recorder.close()
    engine.load(20, random.Random(3))
    watching.catch_up(engine.kv.snapshot())


@pytest.mark.parametrize("loss", ["folder", "file", "other"])
def test_a_file_that_vanishes_is_noticed(tmp_path: Path, loss: str) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    recorder = Recorder(folder / "r", HELLO)
    recorder.take(Step(seq=1, time=0.0, acts=()))
    if loss == "folder":
        shutil.rmtree(folder)
    elif loss == "file":
        os.unlink(folder / "r")
    else:
        (folder / "s").write_text("something else")
        (folder / "s").replace(folder / "r")
    recorder.flush()
    why = "another file has taken its place" if loss == "other" else "No such file or directory"
    assert recorder.stopped == f"nothing more is recorded in {folder / 'r'}, after 1 messages: {why}."
    recorder.take(Step(seq=2, time=0.0, acts=()))
    recorder.close()
