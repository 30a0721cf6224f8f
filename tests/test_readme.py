"""The README does what it says: its Python runs, and its comments are true."""

from __future__ import annotations

import io
import re
from pathlib import Path

import pytest

from pellucid.cli import main
from pellucid.lab import prove

README = (Path(__file__).parents[1] / "README.md").read_text(encoding="utf-8")


@pytest.mark.model
def test_the_example_runs_and_shows_what_it_says() -> None:
    (code,) = re.findall(r"```python\n(.*?)```", README, flags=re.DOTALL)
    setup, rest = code.split("llm.kv.table", 1)
    names: dict[str, object] = {}
    exec(setup, names)
    shown = re.findall(r"^(llm\.kv\.\S.*?|print\(.*?\)|list\(.*?\))\s+# (.*)$", "llm.kv.table" + rest, flags=re.M)
    assert len(shown) == 5
    values = [eval(expression.removeprefix("print"), names) for expression, _ in shown[:3]]
    for value, (_, comment) in zip(values, shown, strict=False):
        assert comment.startswith(str(value)), (value, comment)
    exec("llm.kv.table" + rest, names)
    text = {output.request_id: output.outputs[0].text for output in names["llm"].step()}
    assert "Paris" in text["R1"]


@pytest.mark.model
def test_the_proof_it_shows_is_what_prove_prints() -> None:
    (sample,) = re.findall(r"```text\n( PROVED.*?)```", README, flags=re.DOTALL)
    out = io.StringIO()
    assert prove("smollm2-135m", stream=out) == 0
    printed = out.getvalue().splitlines()
    assert [line for line in sample.splitlines() if line not in printed] == []


def test_the_step_it_shows_is_what_step_prints(capsys: pytest.CaptureFixture[str]) -> None:
    (sample,) = re.findall(r"```text\n(plan .*?)```", README, flags=re.DOTALL)
    assert main(["step", "hole", "--script"]) == 0
    printed = capsys.readouterr().out.splitlines()
    assert [line for line in sample.splitlines() if line not in printed] == []


def test_every_file_it_links_to_is_there() -> None:
    root = Path(__file__).parents[1]
    for target in re.findall(r"\]\(([^)#:]+)\)", README):
        assert (root / target).exists(), target


def test_every_make_target_it_names_is_there() -> None:
    makefile = (Path(__file__).parents[1] / "Makefile").read_text()
    for target in set(re.findall(r"make ([a-z-]+)", README)) - {"it"}:
        assert re.search(rf"^{target}:", makefile, flags=re.M), target
