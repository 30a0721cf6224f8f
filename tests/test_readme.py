"""The README does what it says, in both languages: its Python runs, and its comments are true."""

from __future__ import annotations

import io
import re
from pathlib import Path

import pytest

from pellucid.cli import main
from pellucid.lab import prove

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
KOREAN = (ROOT / "README.ko.md").read_text(encoding="utf-8")

in_both_languages = pytest.mark.parametrize("readme", [README, KOREAN], ids=["en", "ko"])


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


@pytest.mark.parametrize(("readme", "plan", "language"), [(README, "plan", "en"), (KOREAN, "계획", "ko")])
def test_the_step_it_shows_is_what_step_prints(
    readme: str, plan: str, language: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (sample,) = re.findall(rf"```text\n({plan} .*?)```", readme, flags=re.DOTALL)
    assert main(["step", "hole", "--script", "--lang", language]) == 0
    printed = capsys.readouterr().out.splitlines()
    assert [line for line in sample.splitlines() if line not in printed] == []


@in_both_languages
def test_every_file_it_links_to_is_there(readme: str) -> None:
    for target in re.findall(r"\]\(([^)#:]+)\)", readme):
        assert (ROOT / target).exists(), target


@in_both_languages
def test_every_make_target_it_names_is_there(readme: str) -> None:
    makefile = (ROOT / "Makefile").read_text()
    for target in set(re.findall(r"make ([a-z-]+)", readme)) - {"it"}:
        assert re.search(rf"^{target}:", makefile, flags=re.M), target


def code_of(readme: str) -> list[str]:
    """Commands and Python, without their comments."""
    blocks = re.findall(r"```(?:console|python)\n(.*?)```", readme, flags=re.DOTALL)
    return [re.sub(r"\s+# .*", "", line) for block in blocks for line in block.splitlines()]


def test_both_languages_have_the_same_parts_commands_and_links() -> None:
    assert code_of(KOREAN) == code_of(README)
    for mark in (r"^#+ ", r"^```\w*", r"^\| "):
        assert len(re.findall(mark, KOREAN, flags=re.M)) == len(re.findall(mark, README, flags=re.M)), mark
    links = {
        language: {target.replace("lab/ko/", "lab/") for target in re.findall(r"\]\(([^)]+)\)", readme)}
        for language, readme in (("ko", KOREAN), ("en", README))
    }
    assert links["ko"] ^ links["en"] == {"README.md", "README.ko.md"}
