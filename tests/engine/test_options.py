"""What an engine's options become on a device."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from pellucid import LLM
from pellucid.engine.options import EngineOptions


@pytest.mark.parametrize(
    ("device", "given", "filled"),
    [
        ("cpu", {}, (128, 2048, None)),
        ("cuda", {}, (256, 8192, True)),
        ("cuda:1", {"max_num_seqs": 7, "async_scheduling": False}, (7, 8192, False)),
        ("cpu", {"max_num_batched_tokens": 7, "async_scheduling": True}, (128, 7, True)),
    ],
)
def test_what_depends_on_the_device_is_filled_in(device: str, given: dict[str, Any], filled: tuple[Any, ...]) -> None:
    options = EngineOptions.of("LLM", given).on(device)
    assert (options.device, *options.limits, options.async_scheduling) == (device, *filled)


def test_an_engine_shows_its_options_with_what_was_filled_in(engine: Callable[..., LLM]) -> None:
    """Weights that are here already, on the CPU, stay there, whatever other devices this machine has."""
    options = engine().options
    assert (options.device, *options.limits) == ("cpu", 128, 2048)
