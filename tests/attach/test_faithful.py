"""Observing every vLLM that the adapter is written for: what it says is what vLLM's own objects say."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from attach.environment import VERSIONS, WHOLE, run_in
from attach.stub.options import Options

PROBES = Path(__file__).parent / "probes"
WAYS = [Options(), Options(asynchronous=True), Options(groups=(0, 64)), Options(groups=(0, 64), asynchronous=True)]

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


@pytest.mark.parametrize("way", WAYS, ids=str)
@pytest.mark.parametrize("version", VERSIONS)
def test_the_journal_folds_to_what_vllm_holds(version: str, way: Options) -> None:
    if version == "0.9.2" and way.asynchronous:
        pytest.skip("vLLM 0.9.2 has no asynchronous scheduler")
    seen = run_in(version, PROBES / "faithful.py", "7", "60", environment=way.environment)
    assert seen["version"] == version
    assert seen["wrong"] == []
    assert seen["violations"] == []
    assert seen["stopped"] is None
    assert seen["held at the end"] == 0
    assert seen["groups"] == len(way.groups)
    expected = {"share", "evict", "take", "publish", "preempt", "return", "close", "lookup", "launch", "commit"}
    assert expected | ({"drop"} if len(way.groups) > 1 else set()) <= set(seen["acts"])
    assert seen["aborts"] > 0
    assert seen["hit"] > 0
    assert seen["missed"]["evicted"] > 0


@pytest.mark.parametrize("groups", [(0,), (0, 64)])
@pytest.mark.parametrize("version", ["0.9.2", "0.28.0", WHOLE])
def test_whoever_comes_later_is_told_the_truth_too(version: str, groups: tuple[int, ...]) -> None:
    way = Options(groups=groups, asynchronous=version != "0.9.2")
    traffic = ("7" if way.asynchronous else "8", "60")  # without a look at victims, both come to other misses
    seen = run_in(version, PROBES / "now_and_then.py", *traffic, environment=way.environment)
    always = run_in(version, PROBES / "faithful.py", *traffic, environment=way.environment)
    assert {name: seen[name] for name in ("hit", "missed", "steps")} == {
        name: always[name] for name in ("hit", "missed", "steps")
    }
    assert seen["wrong"] == []
    assert seen["violations"] == []
    assert seen["stopped"] is None
    assert seen["turns"] > 5
    assert seen["unheard"] > 50


@pytest.fixture(scope="module")
def faults() -> dict[str, Any]:
    return run_in(WHOLE, PROBES / "faults.py")


def test_a_sound_vllm_is_not_accused(faults: dict[str, Any]) -> None:
    assert faults["none"] == {"said": 0, "violations": [], "stopped": None, "steps": 116, "outputs": 8}


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        ("lose_a_block", "vLLM counts"),
        ("keep_an_owner", "has 1 owners and stands in 0 tables"),
        ("give_out_twice", "while it had"),
        ("swap_in_a_table", "was seen to grow"),
        ("forget_a_hash", "has no hash and was seen to be findable"),
    ],
)
def test_a_vllm_that_does_wrong_is_shown_to(faults: dict[str, Any], fault: str, said: str) -> None:
    assert said in " ".join(faults[fault]["violations"])


def test_vllm_goes_on_alone_when_observing_breaks(faults: dict[str, Any]) -> None:
    broken = faults["breakdown"]
    assert broken["same"]
    assert broken["answers"] == 8
    assert "observing ended" in broken["stopped"]
    assert "no longer observed" in broken["refused"]
