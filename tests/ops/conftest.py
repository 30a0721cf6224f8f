"""The sets of operations under test, in memory that is guarded and full of NaN."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

import pytest
import torch

from guarded_memory import guarded_memory
from pellucid.errors import ConfigError
from pellucid.ops import Ops, choose_ops

SETS = [("compiled", torch.float32), ("compiled", torch.bfloat16), ("onednn", torch.bfloat16)]


@pytest.fixture(autouse=True)
def _guarded() -> Iterator[None]:
    with guarded_memory():
        yield


@cache
def chosen(name: str, dtype: torch.dtype) -> Ops:
    """Once for all tests: each set of compiled operations takes 64 MiB at a time for its weights."""
    return choose_ops(name, dtype, torch.device("cpu"))


def available(name: str, dtype: torch.dtype) -> Ops:
    """Skips the test where this processor, or this installation, does not have them."""
    try:
        return chosen(name, dtype)
    except ConfigError as error:
        pytest.skip(str(error))


@pytest.fixture(params=SETS, ids=["compiled-float32", "compiled-bfloat16", "onednn-bfloat16"])
def ops(request: pytest.FixtureRequest) -> Ops:
    return available(*request.param)


@pytest.fixture(params=SETS[:2], ids=["float32", "bfloat16"])
def compiled(request: pytest.FixtureRequest) -> Ops:
    return available(*request.param)
