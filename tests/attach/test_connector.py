"""The KV connector that only observes: vLLM does with it what it does without, and it is seen all the same."""

from __future__ import annotations

import signal
import sys
from pathlib import Path

import pytest

from attach.environment import VERSIONS, run_in
from attach.served import Watching, beside, install, serving, wait_for
from pellucid.stream.places import places

PROBE = Path(__file__).parent / "probes" / "connector.py"
OPTION = (
    '{"kv_connector": "PellucidObserver", "kv_role": "kv_producer", '
    '"kv_connector_module_path": "pellucid.attach.connector"}'
)


def test_nothing_of_vllm_is_needed_to_import_it() -> None:
    from pellucid.attach import connector

    assert "vllm" not in sys.modules
    with pytest.raises(AttributeError, match="no attribute 'Nobody'"):
        _ = connector.Nobody


def ways(version: str) -> list[tuple[str, ...]]:
    """The KV groups to try: up to 0.11 vLLM itself refuses a second one beside any connector."""
    return [("0",)] if version in ("0.9.2", "0.11.0") else [("0",), ("0", "64")]


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize(("version", "groups"), [(version, groups) for version in VERSIONS for groups in ways(version)])
def test_it_changes_nothing_and_all_is_seen(version: str, groups: tuple[str, ...], tmp_path: Path) -> None:
    seen = run_in(version, PROBE, *groups, environment={"PELLUCID_RUNTIME_DIR": str(tmp_path)})
    without, observed = seen["without"], seen["with"].pop("observed")
    assert seen["with"] == without
    assert observed["stopped"] is None
    assert observed["wrong"] == []
    assert observed["names"] == [f"q{i}" for i in range(8)]
    assert observed["steps"] >= len(without["tables"])
    assert observed["held"] == 0


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_it_is_a_way_in_where_plugins_are_barred(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PELLUCID_RUNTIME_DIR", str(tmp_path))
    python = beside(tmp_path / "venv")
    install(python)
    vllm = [python, "-m", "vllm.entrypoints.cli.main"]
    barred = {"VLLM_PLUGINS": "another", "PELLUCID_OBSERVE": "1"}
    with serving(vllm, tmp_path / "server.log", barred, options=["--kv-transfer-config", OPTION]) as server:
        assert not places()  # until the first request
        clients = server.ask({"name": "alice", "prompt": "The lake freezes in winter. " * 12, "tokens": 300})
        (place,) = wait_for(places)
        with Watching(place.path) as watching:
            request = watching.until(lambda live: live.snapshot.requests)[0]
            assert request.name == "alice"  # the first one too
            clients.results()
            watching.until(lambda live: "alice" in live.ended)
            assert not any(watching.live.snapshot.pools[0].owners)
            assert not watching.live.violations
            server.process.send_signal(signal.SIGINT)  # and with time to end in good order, it says goodbye
            watching.until(lambda live: live.goodbye)
            assert watching.live.goodbye == "vLLM shut down"
            assert not place.path.exists()
