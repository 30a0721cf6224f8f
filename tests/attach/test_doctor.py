"""``pellucid doctor`` beside a real vLLM."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from attach.served import beside, install, surroundings
from attach.stub.folder import write_model

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    python = beside(tmp_path_factory.mktemp("environment") / "venv")
    install(python)
    return python


def doctor(python: Path, folder: Path, *words: str, **environment: str) -> tuple[int, str]:
    """Its exit status and what it says; nothing else is ever said."""
    settings = surroundings({"PELLUCID_RUNTIME_DIR": str(folder), "COLUMNS": "80", **environment})
    program = [python.with_name("pellucid"), "doctor", *words]
    done = subprocess.run(program, capture_output=True, text=True, env=settings, cwd=folder)
    assert done.stderr == ""
    return done.returncode, done.stdout


def test_a_vllm_that_can_be_observed(python: Path, tmp_path: Path) -> None:
    status, said = doctor(python, tmp_path)
    assert status == 0, said
    assert "vLLM: 0.32.0" in said
    assert "registered, and let in" in said
    assert said.count("works: ") == 5
    assert all(len(line) <= 80 for line in said.splitlines() if "/" not in line)  # paths are not broken


def test_a_vllm_whose_plugins_are_barred(python: Path, tmp_path: Path) -> None:
    _, said = doctor(python, tmp_path, "--json", VLLM_PLUGINS="another", PELLUCID_OBSERVE="1")
    environment = json.loads(said)["environment"]
    assert environment["plugin"].startswith("registered, and barred by VLLM_PLUGINS=another")
    assert environment["PELLUCID_OBSERVE"].startswith("set")


def test_one_that_is_started_and_one_that_is_not(python: Path, tmp_path: Path) -> None:
    folder = write_model(tmp_path / "model")
    words = ["--", "--max-model-len", "512", "--dtype", "float32"]
    status, said = doctor(python, tmp_path, "--json", "--model", str(folder), *words)
    facts = json.loads(said)
    assert status == 0, said
    assert len(facts["tried"]) > 10
    assert facts["tried"][-1].startswith("works: a request")
    status, said = doctor(python, tmp_path, "--json", "--model", str(tmp_path / "nothing"))
    facts = json.loads(said)
    assert status == 1
    assert facts["observable"] is False
    assert len(facts["tried"]) == 1
    assert facts["tried"][0].startswith("NOT OBSERVABLE: starting one (python -m pellucid.attach.trial): ")
