"""What is begun before torch is there: only where a GPU is, and whatever comes of it."""

from __future__ import annotations

import builtins
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pellucid import triton_start


@pytest.fixture(autouse=True)
def _anew() -> Iterator[None]:
    triton_start.begin.cache_clear()
    yield
    triton_start.begin.cache_clear()


def test_without_a_gpu_nothing_is_begun(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(triton_start, "NVIDIA", tmp_path / "nvidiactl")
    assert triton_start.begin() is None


def test_where_triton_interprets_nothing_is_begun(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(triton_start, "NVIDIA", tmp_path)
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    assert triton_start.begin() is None


def test_without_triton_nothing_is_said(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Nor is it begun again."""
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    monkeypatch.setattr(os, "register_at_fork", lambda **_: None)
    asked = []
    imports = builtins.__import__

    def refuse(name: str, *rest: Any, **more: Any) -> Any:
        if name.partition(".")[0] == "triton":
            asked.append(name)
            raise ModuleNotFoundError(name)
        return imports(name, *rest, **more)

    monkeypatch.setattr(builtins, "__import__", refuse)
    monkeypatch.setattr(triton_start, "NVIDIA", tmp_path)
    thread = triton_start.begin()
    assert thread is not None
    thread.join()
    assert asked == ["triton.runtime.cache"]
    assert capfd.readouterr() == ("", "")
    assert triton_start.begin() is thread


def test_a_process_forks_once_the_thread_has_ended() -> None:
    """In a process of its own, whose thread takes its time over an import."""
    script = """
import os, pathlib, sys, time
from pellucid import triton_start
os.environ.pop("TRITON_INTERPRET", None)
triton_start.NVIDIA = pathlib.Path(sys.executable)
triton_start._read = lambda: time.sleep(0.5)
thread = triton_start.begin()
assert thread.is_alive()
child = os.fork()
assert not thread.is_alive()
if not child:
    os._exit(7)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert run.stdout == "7\n"


def test_the_engine_begins_it_before_torch_is_there() -> None:
    """In a process of its own, which has no GPU as far as it can see."""
    script = """
import sys, pellucid
from pellucid import triton_start
triton_start.begin = lambda: print("begun", "torch" in sys.modules)
pellucid.SamplingParams
pellucid.LLM
print("there", "torch" in sys.modules)
"""
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert run.stdout.splitlines() == ["begun False", "there True"]
