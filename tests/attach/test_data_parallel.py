"""Two data-parallel engine cores of a vLLM: each is found, with its rank, and shows its own requests."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from attach.environment import ROOT
from attach.served import Watching, beside, install, surroundings, wait_for
from attach.stub.options import Options
from pellucid.stream.places import places

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


def test_each_core_is_shown_with_its_rank(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PELLUCID_RUNTIME_DIR", str(tmp_path))
    python = beside(tmp_path / "venv")
    install(python)
    settings = {"PELLUCID_OBSERVE": "1", "PYTHONPATH": str(ROOT / "tests"), **Options(delay=0.05).environment}
    program = subprocess.Popen(
        [python, ROOT / "tests" / "attach" / "probes" / "parallel.py"],
        env=surroundings(settings),
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        wait_for(lambda: len(places()) == 2 or program.poll() is not None, 300)
        zero, one = sorted(places(), key=lambda place: place.watched.rank)
        assert (zero.watched.rank, one.watched.rank) == (0, 1)
        assert len({zero.watched.pid, one.watched.pid, program.pid}) == 3
        assert zero.path.name == f"{zero.watched.pid}.sock"
        assert one.path.name == f"{one.watched.pid}-1.sock"
        for place, names in ((zero, "q0 q2 q4 q6"), (one, "q1 q3 q5 q7")):
            with Watching(place.path) as watching:
                watching.until(lambda live: len(live.ended) == 4 or live.snapshot.requests)
                known = {*watching.live.ended, *(request.name for request in watching.live.snapshot.requests)}
                assert known <= set(names.split())
                assert not watching.live.violations
        out, said = program.communicate(timeout=300)
        assert json.loads(out.splitlines()[-1])["outputs as expected"], said[-4000:]
    finally:
        program.kill()
        program.wait()
