"""``pellucid vllm serve`` as users start it, with clients and watchers in processes of their own."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from attach.environment import ROOT
from attach.served import BLOCK_SIZE, Server, Watching, beside, install, model_folder, serving, wait_for
from pellucid.errors import StreamError
from pellucid.kv.snapshot import Snapshot
from pellucid.kv.table import RequestStatus
from pellucid.model.tokenizer import from_folder
from pellucid.stream.live import Live
from pellucid.stream.reader import connect
from pellucid.stream.recording import Recorder

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

PROMPT = "The lake freezes in winter, and the ferry stays in its harbour until spring. " * 8
CANARY = "Zephyrine Quillfeather keeps eleven viridian marmots under the lighthouse in Brackwater. " * 4


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The interpreter of an environment with vLLM and Pellucid."""
    python = beside(tmp_path_factory.mktemp("environment") / "venv")
    install(python)
    return python


@pytest.fixture(scope="module")
def runtime(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The folder of sockets of this module."""
    folder = tmp_path_factory.mktemp("run")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PELLUCID_RUNTIME_DIR", str(folder))
        yield folder


@pytest.fixture(scope="module")
def server(python: Path, runtime: Path) -> Iterator[Server]:
    command = [python.with_name("pellucid"), "vllm"]
    with serving(command, runtime / "server.log", {"VLLM_PLUGINS": "another"}) as server:
        yield server


def named(snapshot: Snapshot, *names: str) -> bool:
    """Whether exactly these live, and run."""
    running = [request.name for request in snapshot.requests if request.status is RequestStatus.RUNNING]
    return sorted(running) == sorted(names)


def nobody(live: Live) -> bool:
    return not live.snapshot.requests


def shared(snapshot: Snapshot, one: str, other: str) -> list[int]:
    """The blocks with which both tables begin."""
    tables = {request.name: request.tables[0] for request in snapshot.requests}
    pairs = zip(tables[one], tables[other], strict=False)
    return [a for a, b in pairs if a == b]


def pellucid(*words: str) -> str:
    """What a command says, in a process of its own."""
    environment = os.environ | {"PYTHONPATH": str(ROOT / "src"), "COLUMNS": "200"}
    program = [sys.executable, "-m", "pellucid", *words]
    return subprocess.run(program, env=environment, check=True, capture_output=True, text=True).stdout


def test_it_lets_itself_in_and_says_so(server: Server) -> None:
    log = server.log.read_text()
    assert "pellucid: vLLM is started with VLLM_PLUGINS=another,pellucid, to let Pellucid in." in log
    assert f"look with: pellucid watch {server.place.watched.pid}" in log
    assert server.place.watched.pid != server.process.pid  # vLLM's default: an engine core of its own


def test_live_requests_by_their_clients_names_with_the_blocks_they_share(server: Server) -> None:
    names = ("alice", "bob", "carol", "dave")
    with Watching(server.place.path) as watching:
        clients = server.ask(
            *({"name": name, "prompt": PROMPT, "tokens": 600, "chat": name in ("carol", "dave")} for name in names)
        )
        clients.all_stream()
        watching.until(lambda live: named(live.snapshot, *names))
        place = str(server.place.path)
        (shown,) = map(json.loads, pellucid("watch", "--once", "--json", place).splitlines())
        assert {request["name"] for request in shown["requests"]} == set(names)
        live = watching.live
        for request in live.snapshot.requests:
            assert len(request.tables[0]) == -(-request.slots // BLOCK_SIZE), request
        owners = live.snapshot.pools[0].owners
        for pair in (("alice", "bob"), ("carol", "dave")):
            blocks = shared(live.snapshot, *pair)
            assert len(blocks) >= 3
            assert {owners[block] for block in blocks} == {2}
            hits = {name: request.cached_tokens for request in live.snapshot.requests if (name := request.name) in pair}
            assert sorted(hits.values()) == [0, len(blocks) * BLOCK_SIZE]
            later = max(hits, key=lambda name: hits[name] or 0)
            assert f"hit {len(blocks) * BLOCK_SIZE}" in pellucid("explain", place, later)
        results = clients.results()
        assert {result["id"] for result in results.values()} == {
            "cmpl-alice",
            "cmpl-bob",
            "chatcmpl-carol",
            "chatcmpl-dave",
        }
        watching.until(nobody)
        for name in names:
            assert watching.live.ended[name].reason == "length"
            assert len(watching.live.ended[name].tables[0]) >= 600 // BLOCK_SIZE
        assert not watching.live.violations


def test_two_live_requests_of_one_name_stay_two(server: Server) -> None:
    with Watching(server.place.path) as watching:
        watching.until(nobody)
        job = {"name": "twin", "prompt": PROMPT, "tokens": 300}
        clients = server.ask(job, job)
        clients.all_stream()
        watching.until(lambda live: len(live.snapshot.requests) == 2)
        first, second = sorted((request.name for request in watching.live.snapshot.requests), key=len)
        assert first == "twin"
        assert second.startswith("cmpl-twin-0-")  # vLLM's own name for it, which no other can have
        assert f"two live requests were given the name 'twin'; the later one is shown as {second!r}" in (
            server.log.read_text()
        )
        clients.results()
        watching.until(nobody)


def test_several_answers_to_one_prompt(server: Server) -> None:
    with Watching(server.place.path) as watching:
        clients = server.ask(
            {"name": "pair", "prompt": PROMPT, "tokens": 300, "n": 2},
            {"name": "chat", "prompt": PROMPT, "tokens": 300, "n": 2, "chat": True},
        )
        clients.all_stream()
        watching.until(lambda live: named(live.snapshot, "0_pair", "1_pair", "0_chat", "1_chat"))
        assert len(shared(watching.live.snapshot, "0_pair", "1_pair")) >= 3
        clients.results()
        watching.until(nobody)


def test_a_client_that_hangs_up_gives_its_blocks_back(server: Server) -> None:
    with Watching(server.place.path) as watching:
        server.ask({"name": "fickle", "prompt": PROMPT, "tokens": 800, "leave": 20}).results()
        watching.until(lambda live: "fickle" in live.ended)
        assert watching.live.ended["fickle"].reason == "abort"
        pool = watching.live.snapshot.pools[0]
        assert not any(pool.owners)
        assert pool.taken == pool.returned


def test_watchers_that_are_killed_or_stopped_do_not_concern_vllm(server: Server) -> None:
    program = (
        "import sys; from pathlib import Path; from pellucid.stream.reader import connect\n"
        "reader = connect(Path(sys.argv[1]), 60)\n"
        "print(type(reader.next(60)).__name__, flush=True)\n"
        "while reader.next(60): pass"
    )
    watchers = [
        subprocess.Popen([sys.executable, "-c", program, server.place.path], stdout=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    killed, stopped = watchers
    try:
        clients = server.ask({"name": "steady", "prompt": PROMPT, "tokens": 600})
        clients.all_stream()
        for watcher in watchers:
            assert watcher.stdout
            assert watcher.stdout.readline() == "Picture\n"
        killed.kill()
        stopped.send_signal(signal.SIGSTOP)
        assert clients.results()["steady"]["chunks"] >= 600
        with Watching(server.place.path) as watching:  # others come and see as before
            watching.until(nobody)
        assert stopped.poll() is None
    finally:
        for watcher in watchers:
            watcher.kill()
            watcher.wait()


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no device that is always full")
def test_a_full_disk_under_a_recording_does_not_concern_vllm(server: Server) -> None:
    clients = server.ask({"name": "patient", "prompt": PROMPT, "tokens": 400})
    clients.all_stream()
    command = [sys.executable, "-m", "pellucid", "watch", server.place.path, "--json", "--record", "/dev/full"]
    watcher = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert watcher.stdout
        said = "nothing more is recorded in /dev/full"
        assert any(said in line for line in watcher.stdout)  # each line is what the screen shows now
        assert watcher.poll() is None
        assert clients.results()["patient"]["chunks"] >= 400
        with Watching(server.place.path) as watching:
            watching.until(nobody)
    finally:
        watcher.kill()
        watcher.wait()


def test_no_prompt_leaves_the_engine(server: Server, tmp_path: Path) -> None:
    file = tmp_path / "canary.jsonl"
    with Watching(server.place.path) as watching:
        recorder = Recorder(file, watching.reader.hello)
        job = {"prompt": CANARY, "tokens": 60, "salt": "saltimbocca"}
        clients = server.ask({"name": "one", **job}, {"name": "two", **job, "chat": True})
        while not {"one", "two"} <= watching.live.ended.keys():
            if (message := watching.reader.next(60)) is not None:
                watching.live.take(message)
                recorder.take(message)
        recorder.close()
    text = file.read_text()
    assert '"one"' in text  # it holds what happened
    assert '"two"' in text
    told = clients.results()["one"]["text"]
    for secret in ("Zephyrine", "viridian", "lighthouse", "saltimbocca", told[:40], told[-40:]):
        assert secret not in text
    tokenizer = from_folder(model_folder())
    assert tokenizer
    ids = tokenizer.encode(CANARY)
    assert len(ids) > 50
    for start in range(len(ids) - 2):
        three = ids[start : start + 3]
        assert json.dumps(three, separators=(",", ":"))[1:-1] not in text.replace(" ", "")


def test_a_watcher_is_told_when_the_server_is_killed(server: Server) -> None:
    with Watching(server.place.path) as watching:
        watching.until(nobody)
        os.kill(server.place.watched.pid, signal.SIGKILL)
        with pytest.raises(StreamError, match="is gone without a word: its process was killed"):
            watching.until(lambda _: False)
    wait_for(lambda: server.process.poll() is not None)
    with pytest.raises(StreamError, match="no engine can be watched"):
        connect()
