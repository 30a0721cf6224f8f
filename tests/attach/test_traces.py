"""A real vLLM, observed, shows after every step what was recorded from the inside of one."""

from __future__ import annotations

import pytest

import vllm_traces
from attach.conftest import Replayed

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]


@pytest.mark.parametrize("name", vllm_traces.NAMES)
def test_every_snapshot_is_the_recorded_one(replayed: Replayed, name: str) -> None:
    """Tables, states, computed tokens, pre-emptions, the free queue in order, what is cached, and owners."""
    assert replayed.differences[name] == []
