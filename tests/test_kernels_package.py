"""Installing kernels/: compiled where there is a compiler, harmless where there is none."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

KERNELS = Path(__file__).resolve().parent.parent / "kernels"
LOOK = "import pellucid_kernels as k; from pellucid.native import native; print(k.__file__, native().why, sep='|')"
RUN = "from pellucid import LLM; print(LLM('tiny', num_gpu_blocks_override=20).loaded.model.ops.name)"


def install(folder: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """`pip install` a copy of kernels/ (nothing built before may be found) into ``folder``/site, without a network."""
    source = shutil.copytree(KERNELS, folder / "kernels", ignore=shutil.ignore_patterns("build", "*.egg-info", "*.so"))
    options = ["--no-deps", "--no-build-isolation", "--no-index", "--target", str(folder / "site")]
    return subprocess.run(
        [sys.executable, "-m", "pip", "install", *options, str(source)],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
    )


def said(folder: Path, program: str) -> str:
    path = os.pathsep.join((str(folder / "site"), os.environ.get("PYTHONPATH", "")))
    environment = {**os.environ, "PYTHONPATH": path, "PELLUCID_KERNELS": ""}
    return subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True
    ).stdout.strip()


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("false") is None, reason="there is no program that fails")
def test_without_a_compiler_an_empty_package_is_installed(tmp_path: Path) -> None:
    none = shutil.which("false") or ""
    done = install(tmp_path, CC=none, CXX=none)
    assert done.returncode == 0, done.stderr
    where, why = said(tmp_path, LOOK).split("|")
    assert Path(where).parent == tmp_path / "site" / "pellucid_kernels"
    assert why == "the package pellucid-kernels is not installed, or could not be compiled here"
    assert said(tmp_path, RUN) == "torch"


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("c++") is None, reason="there is no compiler here")
def test_with_a_compiler_they_are_there(tmp_path: Path) -> None:
    done = install(tmp_path)
    assert done.returncode == 0, done.stderr
    where, why = said(tmp_path, LOOK).split("|")
    assert Path(where).parent == tmp_path / "site" / "pellucid_kernels"
    assert why.startswith("avx512") or why == "this processor has no AVX-512, for which they are written"
    assert said(tmp_path, RUN) == ("compiled" if why.startswith("avx512") else "torch")
