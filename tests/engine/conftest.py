"""One loaded `tiny` model for every test here; engines made of it share its weights."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from pellucid import LLM
from pellucid.model import LoadedModel, load


@pytest.fixture(scope="session")
def tiny() -> LoadedModel:
    return load("tiny")


@pytest.fixture
def engine(tiny: LoadedModel) -> Callable[..., LLM]:
    """A fresh engine of `tiny` with the given options over a small default pool."""

    def make(**options: Any) -> LLM:
        sizes = {"num_gpu_blocks_override", "kv_cache_tokens", "kv_cache_memory_bytes"}
        if not sizes & set(options):
            options["num_gpu_blocks_override"] = 200
        return LLM(tiny, **options)

    return make
