"""Every vLLM that the adapter is written for runs on the stub: its own scheduler, with sharing and pressure."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from attach.environment import VERSIONS, run_in

PROBES = Path(__file__).parent / "probes"
WAYS: list[dict[str, Any]] = [
    {"multiprocess": True},
    {"asynchronous": True, "multiprocess": True},
    {},
    {"groups": [0, 64]},
    {"forced": [7, 8, 9], "end_after": 50, "delay": 0.001},
    {"asynchronous": True},
    {"groups": [0, 64], "asynchronous": True},
]

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


@pytest.mark.parametrize("version", VERSIONS)
def test_the_scheduler_of_this_version_runs_in_every_mode(version: str) -> None:
    can_be_asynchronous = version != "0.9.2"
    ways = [way for way in WAYS if can_be_asynchronous or not way.get("asynchronous")]
    seen = run_in(version, PROBES / "run.py", *map(json.dumps, ways))
    assert seen["version"] == version
    for way, run in zip(ways, seen["runs"], strict=True):
        assert "failed" not in run, run["failed"]
        assert run["outputs as expected"], way
        if not way.get("multiprocess"):
            assert run["preemptions"] > 0
            assert run["free"] == 39
            assert len(run["groups"]) == len(way.get("groups", [0]))
            assert run["scheduler"] == ("AsyncScheduler" if way.get("asynchronous") else "Scheduler")


@pytest.mark.parametrize("version", VERSIONS)
def test_what_an_observer_needs_is_found_on_this_version(version: str) -> None:
    seen = run_in(version, PROBES / "surface.py")
    assert all(seen["hooks"]["scheduler"][name] for name in ("schedule", "update_from_output", "finish_requests"))
    assert all(seen["hooks"]["manager"][name] for name in ("get_block_ids", "free", "reset_prefix_cache"))
    assert seen["block"]["null"] == [0, 0, True]
    assert any("resumed" in note for note in seen["notes"])


@pytest.mark.parametrize("version", VERSIONS)
def test_two_engine_cores_share_the_requests_of_this_version(version: str) -> None:
    seen = run_in(version, PROBES / "parallel.py")
    assert len(seen["cores"]) == 2
    assert seen["outputs as expected"]
