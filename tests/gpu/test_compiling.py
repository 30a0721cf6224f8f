"""Kernels compiled ahead: all of them, none launched, the same as Triton itself compiles; without a card, for one."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from pellucid.runtime.compiling import compile_ahead

HERE = Path(__file__).parent
LAUNCHED = ["add_kernel", "add_kernel", "add_kernel", "negate_kernel"]


def run(how: str, cache: Path, program: str = "compiled_ahead.py") -> dict[str, Any]:
    surroundings = {**os.environ, "TRITON_CACHE_DIR": str(cache), "TRITON_INTERPRET": "0"}
    done = subprocess.run([sys.executable, HERE / program, how], env=surroundings, capture_output=True, text=True)
    assert not done.returncode, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def test_every_kernel_is_compiled_before_the_first_launch_and_found_again(tmp_path: Path) -> None:
    first = run("ahead", tmp_path)
    assert (first["compiled"], first["read"]) == (3 + 1, 0)  # one more does nothing: it prepares for the others
    assert first["walked"] == first["still"] == 0
    assert first["launched"] == LAUNCHED
    second, plain = run("ahead", tmp_path), run("plain", tmp_path)
    assert (second["compiled"], second["read"]) == (0, 3 + 1)
    assert (plain["compiled"], plain["read"]) == (0, 3)
    assert plain["launched"] == LAUNCHED


def test_what_launches_a_kernel_is_loaded_by_one_thread(tmp_path: Path) -> None:
    """Python may take the modules that two threads load at a time for one."""
    for _ in range(2):
        assert run("ahead", tmp_path)["alone"] == [True] * len(LAUNCHED)


def test_a_kernel_that_cannot_be_compiled_is_named(tmp_path: Path) -> None:
    refusal = run("ahead", tmp_path)["refusal"]
    assert refusal.startswith("Kernel broken_kernel cannot be compiled")
    assert "power of 2" in refusal


@pytest.mark.parametrize("kind", ["llama", "qwen3"])
def test_steps_of_two_layers_launch_every_kernel_that_steps_of_all_do(tmp_path: Path, kind: str) -> None:
    kernels = run(kind, tmp_path, "kernels_of_steps.py")
    for work in ("rehearsal", "buckets"):
        assert kernels[f"shallow {work}"] == kernels[f"whole {work}"] != []
    assert kernels["served"]
    assert set(kernels["served"]) <= set(kernels["shallow buckets"])


@pytest.mark.skipif(torch.cuda.is_available(), reason="kernels are compiled here")
def test_where_triton_interprets_nothing_is_run() -> None:
    compile_ahead(lambda: pytest.fail("there is nothing to compile"))


def test_what_is_begun_before_torch_is_kept_for_the_first_kernel() -> None:
    """And torch is not imported for it."""
    script = """
import json, pathlib, sys
from pellucid import triton_start
triton_start.NVIDIA = pathlib.Path(sys.executable)
triton_start.begin().join()
without_torch = "torch" not in sys.modules
from triton.runtime.cache import triton_key
print(json.dumps([without_torch, triton_key.cache_info().currsize]))
"""
    surroundings = {**os.environ, "TRITON_INTERPRET": "0"}
    done = subprocess.run([sys.executable, "-c", script], env=surroundings, capture_output=True, text=True)
    assert not done.returncode, done.stderr
    assert json.loads(done.stdout) == [True, 1]
    assert not done.stderr
