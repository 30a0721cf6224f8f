"""A real engine in a process of its own that takes its turns when it is told to, and whoever watches it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

PROGRAM = """
import json, sys
from pellucid import LLM, SamplingParams
llm = LLM("tiny", block_size=4, **json.loads(sys.argv[1]))
print("ready", flush=True)
for line in sys.stdin:
    for verb, *words in [line.split()]:
        if verb == "add":
            name, first, count, most = words
            tokens = [int(first) + i for i in range(int(count))]
            llm.add_request(name, {"prompt_token_ids": tokens}, SamplingParams(max_tokens=int(most), ignore_eos=True))
        elif verb == "abort":
            llm.abort_request(words[0])
        elif verb == "step":
            for _ in range(int(words[0])):
                llm.step()
    print(json.dumps({r.name: r.blocks for r in llm.kv.snapshot().requests}), flush=True)
"""


class Run(NamedTuple):
    """A recording of an engine, what ``watch --json`` said meanwhile, and the engine's own block tables."""

    file: Path
    told: list[Any]
    tables: list[dict[str, list[int]]]


class Driven:
    """An engine of `tiny` with blocks of 4 tokens; each verb returns the block tables after it, by name."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process

    def add(self, name: str, first: int, count: int, most: int = 50) -> dict[str, list[int]]:
        """A request whose prompt are the tokens ``first``, ``first + 1`` …"""
        return self._tell(f"add {name} {first} {count} {most}")

    def step(self, times: int = 1) -> dict[str, list[int]]:
        return self._tell(f"step {times}")

    def abort(self, name: str) -> dict[str, list[int]]:
        return self._tell(f"abort {name}")

    def end(self) -> None:
        """Its program comes to its end."""
        assert self.process.stdin
        self.process.stdin.close()
        self.process.wait(20)

    def _tell(self, line: str) -> dict[str, list[int]]:
        assert self.process.stdin
        assert self.process.stdout
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()
        tables: dict[str, list[int]] = json.loads(self.process.stdout.readline())
        return tables


@contextmanager
def driven(folder: Path, **options: Any) -> Iterator[Driven]:
    """An engine that can be watched by whoever has ``folder`` as its place of sockets."""
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, json.dumps({"num_gpu_blocks_override": 40, **options})],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env=environment(folder) | {"PELLUCID_OBSERVE": "1"},
    )
    assert process.stdout
    assert process.stdout.readline() == "ready\n"
    try:
        yield Driven(process)
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def environment(folder: Path) -> dict[str, str]:
    """What a watcher of the engines in ``folder`` is started with."""
    english = {"LC_ALL": "C.UTF-8", "TERM": "xterm-256color", "PELLUCID_RUNTIME_DIR": str(folder)}
    return {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES")} | english


def pellucid(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """``pellucid ARGUMENTS`` to its end."""
    command = [sys.executable, "-m", "pellucid", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, env=environment(folder))


def watching(folder: Path, *arguments: str) -> subprocess.Popen[str]:
    """``pellucid watch ARGUMENTS``, which goes on."""
    command = [sys.executable, "-m", "pellucid", "watch", *arguments]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment(folder))


def line_of(watcher: subprocess.Popen[str]) -> Any:
    """The next line of ``watch --json``."""
    assert watcher.stdout
    return json.loads(watcher.stdout.readline())
