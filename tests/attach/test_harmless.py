"""Pellucid beside a vLLM: nothing else in the environment changes, and nothing happens until it is asked for."""

from __future__ import annotations

import json
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from attach.served import ask, beside, install, surroundings, wheel

ENTRY_POINT = """
import json, sys, time
import vllm
before, began = set(sys.modules), time.perf_counter()
from importlib.metadata import entry_points
(found,) = entry_points(group="vllm.general_plugins", name="pellucid")
found.load()()
print(json.dumps([1000 * (time.perf_counter() - began), sorted(set(sys.modules) - before)]))
"""

ALONE = """
import json, sys
from importlib.metadata import entry_points
(found,) = entry_points(group="vllm.general_plugins", name="pellucid")
found.load()()
print(json.dumps(sorted(sys.modules)))
"""

WRECKED = """
import os
os.environ["PELLUCID_OBSERVE"] = "1"
from pellucid.attach import doorway, plugin
def wreck(): raise RuntimeError("no way in")
doorway.open_at_start = doorway.open_at_first_request = wreck
plugin.register()
from pellucid.attach.connector import _observe
_observe()
import vllm.plugins
vllm.plugins.load_general_plugins()
print("goes on")
"""


def test_the_wheel_is_pure_python() -> None:
    with zipfile.ZipFile(wheel()) as file:
        names = file.namelist()
        (tags,) = (file.read(name).decode() for name in names if name.endswith(".dist-info/WHEEL"))
        (points,) = (file.read(name).decode() for name in names if name.endswith("entry_points.txt"))
    assert "Root-Is-Purelib: true" in tags
    assert "Tag: py3-none-any" in tags
    assert {Path(name).suffix for name in names} <= {".py", ".json", ".css", ".js", ".typed", ".txt", ""}
    assert "pellucid = pellucid.attach.plugin:register" in points


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return beside(tmp_path_factory.mktemp("environment") / "venv")


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_vllm_environment_after_installing(python: Path) -> None:
    before = installed(python)
    assert "pellucid" not in before
    install(python)
    after = installed(python)
    assert after.pop("pellucid")
    assert after == before
    assert before["msgspec"]  # all that we need was there
    assert before["rich"]

    alone = json.loads(ask(python, ALONE))
    assert {name for name in alone if name.partition(".")[0] == "pellucid"} == {
        "pellucid",
        "pellucid.attach",
        "pellucid.attach.plugin",
        "pellucid.notebook",
    }
    assert not {"torch", "numpy", "msgspec", "rich"} & set(alone)

    milliseconds, added = json.loads(ask(python, ENTRY_POINT))
    print(f"the entry point without its variable: {milliseconds:.1f} ms")
    assert [name for name in added if not name.startswith(("pellucid", "importlib"))] == []

    assert ask(python, WRECKED).endswith("goes on")


def installed(python: Path) -> dict[str, str]:
    """What pip says is there, with versions."""
    command = [sys.executable, "-m", "pip", "--python", python, "list", "--format", "json"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=surroundings({}))
    return {each["name"]: each["version"] for each in json.loads(done.stdout)}
