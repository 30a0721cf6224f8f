"""What a notebook shows, and the one notebook of the docs: it runs, and its outputs are what it gives today."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import nbformat
import pytest
from IPython import get_ipython
from IPython.core.interactiveshell import InteractiveShell
from nbclient import NotebookClient
from traitlets.config import Config

from html_tree import read
from pellucid import LLM, SamplingParams, notebook
from pellucid.lab import CLAIMS, Proof, Report
from pellucid.lab.pellucid_subject import PellucidLaboratory
from pellucid.lab.trial import trial

FIRST_LOOK = Path(__file__).parents[1] / "docs" / "notebooks" / "first_look.ipynb"
REFRESH = "python docs/notebooks/refresh.py"
STYLE = re.compile("<style>.*?</style>", re.DOTALL)


def outputs(cell: Any) -> list[dict[str, str]]:
    """What a cell shows on its own account: without style sheets, and without what the engine logs."""
    shown = []
    for output in cell.get("outputs", []):
        if output.output_type == "stream":
            shown += [{"stdout": output.text}] if output.name == "stdout" else []
        else:
            shown.append({kind: STYLE.sub("", value) for kind, value in output.data.items()})
    return shown


def test_the_notebook_shows_what_it_showed() -> None:
    kept = nbformat.read(FIRST_LOOK, as_version=4)
    ran = nbformat.read(FIRST_LOOK, as_version=4)
    NotebookClient(ran, timeout=120, kernel_name="python3").execute()
    for number, (before, now) in enumerate(zip(kept.cells, ran.cells, strict=True)):
        assert outputs(now) == outputs(before), f"cell {number} now shows something else; if that is right: {REFRESH}"
    pictures = [shown for cell in ran.cells for shown in outputs(cell) if "text/html" in shown]
    assert len(pictures) == 5
    shared = read(pictures[1]["text/html"])
    assert "".join(cell.text for cell in shared.one(class_="map").all("b")).startswith("#222ABBCC.")
    assert read(pictures[-1]["text/html"]).one(class_="verdict").text == "✓proved"


@pytest.fixture
def shell() -> Iterator[InteractiveShell]:
    """An IPython in this process, as a notebook's kernel has one."""
    running = InteractiveShell.instance(config=Config({"HistoryManager": {"enabled": False}}))
    notebook.register()
    yield running
    InteractiveShell.clear_instance()


@pytest.fixture(scope="module")
def llm() -> LLM:
    made = LLM("tiny", num_gpu_blocks_override=32)
    made.add_request("<b>R1", "a prompt of more than one block of tokens", SamplingParams(max_tokens=4))
    made.step()
    return made


@pytest.fixture(scope="module")
def report() -> Report:
    return trial(PellucidLaboratory("tiny"), CLAIMS[:1])


def shown(shell: InteractiveShell, value: object) -> dict[str, str]:
    data, _ = shell.display_formatter.format(value)
    return data


def test_a_snapshot_shows_its_picture(shell: InteractiveShell, llm: LLM) -> None:
    for value in (llm.kv.snapshot(), llm.kv):
        data = shown(shell, value)
        tree = read(data["text/html"])
        assert "".join(cell.text for cell in tree.one(class_="map").all("b")) == "#AAA" + "." * 28
        assert tree.one(class_="named").text == "A<b>R1"
        assert data["text/plain"].splitlines()[1] == "   0  #AAA............ ................"


def test_a_request_shows_its_table(shell: InteractiveShell, llm: LLM) -> None:
    data = shown(shell, llm.kv.snapshot().request("<b>R1"))
    assert read(data["text/html"]).one(class_="strip").text == "1–3"
    assert data["text/plain"] == "<b>R1: running, 41 tokens with a slot, 3 blocks: 1-3"


def test_proofs_and_reports_show_their_claims(shell: InteractiveShell, report: Report) -> None:
    proof: Proof = report.claims[0]
    for value in (proof, report):
        (section,) = read(shown(shell, value)["text/html"]).all("section")
        assert proof.reason in section.text
    assert shown(shell, proof)["text/plain"] == repr(proof)
    assert "PROVED   1. The pool is fixed" in shown(shell, report)["text/plain"]


def test_inside_something_else_it_stays_short(shell: InteractiveShell, llm: LLM) -> None:
    data = shown(shell, [llm.kv.snapshot()])
    assert data["text/plain"].startswith("[<Snapshot of step 1, act ")
    assert "text/html" not in data


def test_without_ipython_nothing_happens() -> None:
    InteractiveShell.clear_instance()
    assert get_ipython() is None
    notebook.register()
