"""What runs on a GPU, tested there if there is one, and in Triton's interpreter on the processor otherwise."""

from __future__ import annotations

import importlib.util
import os

import pytest
import torch

GPU = torch.cuda.is_available()
if not GPU:
    os.environ.setdefault("TRITON_INTERPRET", "1")  # before anything imports triton
DTYPES = (torch.float32, torch.float16, torch.bfloat16) if GPU else (torch.float32, torch.float16)

if importlib.util.find_spec("triton") is None:
    collect_ignore_glob = ["test_*.py"]


@pytest.fixture
def device() -> torch.device:
    return torch.device("cuda" if GPU else "cpu")


@pytest.fixture
def dtypes() -> tuple[torch.dtype, ...]:
    """The types that matrix products are tested in: the interpreter has none of bfloat16."""
    return DTYPES


@pytest.fixture(params=DTYPES, ids=lambda dtype: str(dtype).removeprefix("torch."))
def dtype(request: pytest.FixtureRequest) -> torch.dtype:
    return request.param
