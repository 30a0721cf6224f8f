"""Running scripts for vLLM in this process, with nothing of it left behind."""

from __future__ import annotations

import os
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple
from unittest import mock

import pytest
import torch

from pellucid import compat


class Ran(NamedTuple):
    """How a script ended, and what it and Pellucid wrote."""

    status: int
    out: str
    err: str


Play = Callable[..., Ran]


@pytest.fixture(autouse=True, scope="package")
def _one_thread() -> Iterator[None]:
    """Two threads on a busy two-core machine wait for each other most of the time."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture
def play(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Play:
    """Run the text of a script as ``pellucid run SCRIPT ARGS`` does; its file is ``script.py``."""

    def run(text: str, *args: str, model: str | None = "tiny") -> Ran:
        script = tmp_path / "script.py"
        script.write_text(textwrap.dedent(text))
        capsys.readouterr()
        with mock.patch.dict(os.environ):
            status = compat.run(script, args, model)
        return Ran(status, *capsys.readouterr())

    return run
