"""Which model a script gets: its own, the forced one, or the default if its own is absent; never to hide damage."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from huggingface_hub import constants

from pellucid.compat import maker

LLM = "from vllm import LLM\nllm = LLM(model={!r}, num_gpu_blocks_override=8, max_model_len=64)\n"
PRINT = "print(llm.llm_engine.model_config.model)"


@pytest.fixture
def no_hub(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """The hub cannot be reached; returns its local cache, which is empty."""
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    return tmp_path / "hub"


def test_the_scripts_own_model_without_a_word(play: Any) -> None:
    ran = play(LLM.format("tiny") + PRINT, model=None)
    assert ran.out == "tiny\n"
    assert "place of" not in ran.err


def test_a_forced_model_for_every_engine_of_the_script(play: Any) -> None:
    ran = play((LLM + PRINT + "\n").format("some/model") + (LLM + PRINT).format("/no/where"), model="tiny")
    assert ran.out == "tiny\ntiny\n"
    assert "--model tiny takes the place of the script's some/model.\n" in ran.err
    assert "--model tiny takes the place of the script's /no/where.\n" in ran.err
    assert "  model: tiny, in place of the script's some/model.\n" in ran.err


def test_an_absent_model_is_replaced_by_the_default_and_asked_for_once(
    play: Any, no_hub: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(maker, "DEFAULT_MODEL", "tiny")
    ran = play(LLM.format("some/model") * 2 + PRINT, model=None)
    assert ran.out == "tiny\n"
    assert ran.err.count("The model 'some/model' is not in the local Hugging Face cache") == 1
    assert ran.err.count("tiny takes the place of the script's some/model (--model names another).") == 2


def test_an_absent_forced_model_is_an_error(play: Any, no_hub: Path) -> None:
    ran = play(LLM.format("tiny"), model="some/model")
    assert ran.status == 1
    assert "line 2: The model 'some/model' is not in the local Hugging Face cache" in ran.err


def test_a_damaged_folder_is_an_error(play: Any, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{")
    ran = play(LLM.format(str(tmp_path)), model=None)
    assert ran.status == 1
    assert "config.json" in ran.err
    assert "place of" not in ran.err


def test_a_cached_model_that_cannot_be_run_is_an_error(play: Any, no_hub: Path) -> None:
    snapshot = no_hub / "models--some--model" / "snapshots" / "0123"
    snapshot.mkdir(parents=True)
    (snapshot / "config.json").write_text('{"architectures": ["GPT2LMHeadModel"]}')
    (no_hub / "models--some--model" / "refs").mkdir()
    (no_hub / "models--some--model" / "refs" / "main").write_text("0123")
    ran = play(LLM.format("some/model"), model=None)
    assert ran.status == 1
    assert "place of" not in ran.err
