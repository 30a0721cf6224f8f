"""What runs on a GPU, tested there if there is one, and in Triton's interpreter on the processor otherwise."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Iterable
from pathlib import Path

import pytest
import torch

GPU = torch.cuda.is_available()
if not GPU:
    os.environ.setdefault("TRITON_INTERPRET", "1")  # before anything imports triton
DTYPES = (torch.float32, torch.float16, torch.bfloat16) if GPU else (torch.float32, torch.float16)


class WithoutTriton(pytest.Module):
    """A file of tests that cannot even be imported here."""

    def collect(self) -> Iterable[pytest.Item]:
        pytest.skip("triton is not installed, and the kernels are written in it", allow_module_level=True)


def pytest_pycollect_makemodule(module_path: Path, parent: pytest.Collector) -> pytest.Module | None:
    if importlib.util.find_spec("triton") is None:
        return WithoutTriton.from_parent(parent, path=module_path)
    return None


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
