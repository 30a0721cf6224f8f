"""The command line in processes of its own: exit statuses, and errors of one sentence."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest


def pellucid(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "pellucid", *arguments], capture_output=True, text=True, timeout=120)


def test_version_and_help() -> None:
    assert pellucid("--version").stdout.startswith("pellucid 0.")
    shown = pellucid("--help")
    assert shown.returncode == 0
    assert "prove" in shown.stdout
    assert "run" in shown.stdout


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("prove", "--model", "no-such-model"), "not a model that can be found"),
        (("prove", "--model", "tiny", "--block-size", "24"), "power of two"),
        (("prove", "--model", "tiny", "--no-such-option"), "unrecognized arguments"),
        (("run", "no_such_script.py"), "no_such_script.py"),
        (("explode",), "invalid choice"),
    ],
)
def test_refusals_are_short_and_exit_with_2(arguments: tuple[str, ...], words: str) -> None:
    done = pellucid(*arguments)
    assert done.returncode == 2
    assert words in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("order", ["before", "after", "equals"])
def test_run_takes_the_model_before_or_after_the_script(tmp_path: Path, order: str) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        "import sys\n"
        "from vllm import LLM, SamplingParams\n"
        "llm = LLM(model='somebody/something', num_gpu_blocks_override=20)\n"
        "print(sys.argv[1:], len(llm.generate(['hi'], SamplingParams(max_tokens=3))[0].outputs[0].token_ids))\n"
    )
    model, name = ["--model", "tiny"], [str(script)]
    words = {"before": model + name, "after": name + model, "equals": [*name, "--model=tiny"]}[order]
    done = pellucid("run", *words, "x", "--y")
    assert done.returncode == 0, done.stderr
    assert done.stdout == "['x', '--y'] 3\n"
