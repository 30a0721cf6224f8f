"""The real weights, loaded at most once a session."""

from __future__ import annotations

import pytest

from pellucid.model import LoadedModel, load


@pytest.fixture(scope="session")
def smollm2() -> LoadedModel:
    """``smollm2-135m`` in float32."""
    return load("smollm2-135m", dtype="float32")
