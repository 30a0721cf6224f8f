"""Running scripts for vLLM in this process, with nothing of it left behind."""

from __future__ import annotations

import os
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple
from unittest import mock

import pytest

from pellucid import compat


class Ran(NamedTuple):
    """How a script ended, and what it and Pellucid wrote."""

    status: int
    out: str
    err: str


Play = Callable[..., Ran]


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
