"""Real servers for the tests: vLLM with Pellucid installed beside it, and clients that stream from it."""

from __future__ import annotations

import functools
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from attach.environment import ROOT, SETTINGS, vllm_python
from pellucid.stream.live import Live
from pellucid.stream.places import Place, places
from pellucid.stream.reader import Reader, connect

PATIENCE = 600.0
"""Seconds after which a test gives up on a server that starts; on an idle machine it takes twenty."""

BLOCK_SIZE = 32


@functools.cache
def wheel() -> Path:
    """Pellucid as it would be installed, built from a copy of the source: building leaves things behind."""
    folder = Path(tempfile.mkdtemp(prefix="pellucid-wheel-"))
    source = folder / "source"
    shutil.copytree(ROOT / "src", source / "src", ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    build = [sys.executable, "-m", "pip", "wheel", "--no-deps", "--no-build-isolation", "-qq", "-w", folder, source]
    done = subprocess.run(build, capture_output=True, text=True)
    if done.returncode:
        pytest.skip(f"no wheel of Pellucid can be built here: {done.stderr.splitlines()[-1]}")
    (built,) = folder.glob("*.whl")
    return built


def beside(folder: Path) -> Path:
    """An environment over that of vLLM, so that nothing need be installed in the latter; returns its interpreter."""
    base = vllm_python()
    subprocess.run([base, "-m", "venv", "--without-pip", folder], check=True)
    python = folder / "bin" / "python"
    (packages(python) / "base.pth").write_text(f"import site; site.addsitedir({str(packages(base))!r})")
    return python


def install(python: Path) -> None:
    """Pellucid into the environment of ``python``, and nothing else."""
    pip = [sys.executable, "-m", "pip", "--python", python, "install", "-qq", "--no-deps", wheel()]
    subprocess.run(pip, check=True, env=surroundings({}))  # on its path the source would count as installed


def packages(python: Path) -> Path:
    return Path(ask(python, "import sysconfig; print(sysconfig.get_path('purelib'))"))


def ask(python: Path, program: str, environment: Mapping[str, str] = {}) -> str:
    """What ``program`` prints."""
    done = subprocess.run([python, "-c", program], capture_output=True, text=True, env=surroundings(environment))
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def surroundings(more: Mapping[str, str]) -> dict[str, str]:
    """The settings of all tests of a vLLM, but for Pellucid's source: here it is installed."""
    unset = {"PYTHONPATH", "VLLM_ENABLE_V1_MULTIPROCESSING", "VLLM_PLUGINS"}
    settings = {**os.environ, **SETTINGS, "VLLM_CPU_NUM_OF_RESERVED_CPU": "1"}
    return {name: value for name, value in settings.items() if name not in unset} | dict(more)


@functools.cache
def model_folder() -> Path:
    """SmolLM2 as a folder that vLLM can load, its tokenizer and chat template included."""
    done = subprocess.run(
        [sys.executable, ROOT / "benchmarks" / "model_folder.py", "smollm2-135m"],
        capture_output=True,
        text=True,
        env=os.environ | {"PYTHONPATH": str(ROOT / "src")},
    )
    if done.returncode:
        pytest.skip(f"the model cannot be had: {done.stderr.splitlines()[-1]}")
    return Path(json.loads(done.stdout.splitlines()[-1])["folder"])


class Server:
    """A running ``vllm serve``; ``place`` is where its one engine core can be watched."""

    def __init__(self, process: subprocess.Popen[bytes], url: str, log: Path) -> None:
        self.process = process
        self.url = url
        self.log = log

    @property
    def place(self) -> Place:
        (place,) = places()
        return place

    def ask(self, *jobs: Mapping[str, Any]) -> Clients:
        return Clients(self.url, jobs)


@contextmanager
def serving(
    command: Sequence[str | Path], log: Path, environment: Mapping[str, str] = {}, options: Sequence[str] = ()
) -> Iterator[Server]:
    """``command`` with what it needs to serve a small model on a free port, until the end of the block."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    options = [*options, "--host", "127.0.0.1", "--port", port, "--served-model-name", "m", "--dtype", "bfloat16"]
    options += ["--enforce-eager", "--block-size", str(BLOCK_SIZE), "--num-gpu-blocks-override", "100"]
    options += ["--max-model-len", "1024", "--max-num-seqs", "8", "--shutdown-timeout", "10"]
    with log.open("wb") as file:
        process = subprocess.Popen(
            [*command, "serve", model_folder(), *options],
            env=surroundings(environment),
            cwd=log.parent,
            stdout=file,
            stderr=subprocess.STDOUT,
            start_new_session=True,  # all that it starts can be ended with it
        )
    server = Server(process, f"http://127.0.0.1:{port}", log)
    try:
        wait_for(lambda: process.poll() is not None or _is_healthy(server.url), PATIENCE)
        assert process.poll() is None, log.read_text()[-4000:]
        yield server
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGINT)
        try:
            process.wait(30)
        finally:
            _kill(process.pid)


def _is_healthy(url: str) -> bool:
    try:
        with urllib.request.urlopen(f"{url}/health", timeout=2):
            return True
    except OSError:
        return False


def _kill(session: int) -> None:
    try:
        os.killpg(session, signal.SIGKILL)
    except ProcessLookupError:
        return


def wait_for(condition: Callable[[], Any], patience: float = 60.0) -> Any:
    """The first true value of ``condition``, which is asked again and again."""
    deadline = time.monotonic() + patience
    while not (value := condition()):
        assert time.monotonic() < deadline, f"nothing came of it in {patience:g} s"
        time.sleep(0.05)
    return value


class Clients:
    """Requests under way, streamed by the official client in a process of its own; a job is what client.py says."""

    def __init__(self, url: str, jobs: Sequence[Mapping[str, Any]]) -> None:
        script = Path(__file__).with_name("probes") / "client.py"
        self._process = subprocess.Popen(
            [vllm_python(), script, url, json.dumps(jobs)],
            stdout=subprocess.PIPE,
            text=True,
            env=surroundings({}),
        )
        self._jobs = len(jobs)

    def all_stream(self) -> None:
        """Returns once each has its first token."""
        self._take("begun")

    def results(self) -> dict[str, dict[str, Any]]:
        """What each was told in all, by the name of the request; returns when they have ended."""
        ended = self._take("ended")
        assert self._process.wait(30) == 0
        return {each["name"]: each for each in ended}

    def _take(self, kind: str) -> list[dict[str, Any]]:
        assert self._process.stdout
        found: list[dict[str, Any]] = []
        while len(found) < self._jobs:
            line = self._process.stdout.readline()
            assert line, f"the clients ended: {self._process.wait(30)}"
            said = json.loads(line)
            found += [said] if said["what"] == kind else []
        return found


class Watching:
    """A watcher in this process."""

    def __init__(self, path: Path) -> None:
        self.reader: Reader = connect(path, 60.0)
        self.live = Live(self.reader.hello.watched)

    def until(self, condition: Callable[[Live], Any], patience: float = 60.0) -> Any:
        """Takes what comes until ``condition`` holds of what is known then."""
        deadline = time.monotonic() + patience
        while not (self.live.ready and (value := condition(self.live))):
            assert time.monotonic() < deadline, f"not seen in {patience:g} s: {self.live.snapshot.requests}"
            if (message := self.reader.next(1.0)) is not None:
                self.live.take(message)
        return value

    def __enter__(self) -> Watching:
        return self

    def __exit__(self, *_: object) -> None:
        self.reader.close()
