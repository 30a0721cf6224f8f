"""The language of the reports, and the real weights, loaded at most once a session."""

from __future__ import annotations

import os

import pytest

from pellucid.model import LoadedModel, load

os.environ["LC_ALL"] = "C.UTF-8"  # reports are in English, wherever the tests run


@pytest.fixture(scope="session")
def smollm2() -> LoadedModel:
    """``smollm2-135m`` in float32."""
    return load("smollm2-135m", dtype="float32")
