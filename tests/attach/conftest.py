"""Runs of a real vLLM that several tests look at. Each is made once, if one of them is to run."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import pytest

import vllm_traces
from attach.environment import WHOLE, run_in, vllm_python

PROBES = Path(__file__).parent / "probes"


class Replayed(NamedTuple):
    """What the real vLLM did otherwise than recorded, by trace, and the folder of the journals that were observed."""

    differences: dict[str, list[str]]
    journals: Path


@pytest.fixture(scope="session")
def smollm2_folder() -> str:
    """SmolLM2 as vLLM loads it: a Hugging Face folder with our GGUF file's weights, in float32."""
    import torch

    from pellucid.model import find
    from pellucid.model.export import model_folder

    vllm_python()  # skips, before anything is made
    return str(model_folder(find("smollm2-135m"), torch.float32))


@pytest.fixture(scope="session")
def replayed(smollm2_folder: str, tmp_path_factory: pytest.TempPathFactory) -> Replayed:
    """All recorded runs, played on the real vLLM."""
    journals = tmp_path_factory.mktemp("journals")
    differences: dict[str, Any] = run_in(
        WHOLE, PROBES / "traces.py", smollm2_folder, str(journals), *vllm_traces.NAMES, timeout=1800
    )
    return Replayed(differences, journals)
