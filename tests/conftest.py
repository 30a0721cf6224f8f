"""The language of the reports, and the real weights, loaded at most once a session."""

from __future__ import annotations

import os
import secrets

import pytest
import torch

from model_free import DEPTH
from pellucid.model import LoadedModel, load

os.environ["LC_ALL"] = "C.UTF-8"  # reports are in English, wherever the tests run


@pytest.fixture(scope="session")
def smollm2() -> LoadedModel:
    """``smollm2-135m`` in float32."""
    return load("smollm2-135m", dtype="float32")


@pytest.fixture
def draw() -> torch.Generator:
    """Random numbers: the same every time, or fresh ones if PELLUCID_TEST_DEPTH is above 1.

    A test that fails shows the seed; PELLUCID_TEST_SEED draws the same again.
    """
    fresh = secrets.randbelow(2**31) if DEPTH > 1 else 1
    seed = int(os.environ.get("PELLUCID_TEST_SEED", fresh))
    print(f"PELLUCID_TEST_SEED={seed}")
    return torch.Generator().manual_seed(seed)
