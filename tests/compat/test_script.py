"""A script runs as Python would run it, and its end is its own."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from pellucid import compat
from pellucid.errors import ConfigError


def test_the_script_is_main_with_its_own_arguments_and_neighbours(play: Any, tmp_path: Path) -> None:
    (tmp_path / "neighbour.py").write_text("word = 'hello'")
    argv, path = list(sys.argv), list(sys.path)
    ran = play(
        """
        import sys
        import neighbour
        print(__name__, sys.argv[1:], neighbour.word)
        """,
        "--flag",
        "a b",
    )
    sys.modules.pop("neighbour")
    assert ran == (0, "__main__ ['--flag', 'a b'] hello\n", "")
    assert (sys.argv, sys.path) == (argv, path)


@pytest.mark.parametrize(
    ("end", "status", "err"), [("3", 3, ""), ("", 0, ""), ("None", 0, ""), ("'no more'", 1, "no more\n"), ("0", 0, "")]
)
def test_its_exit_status_is_its_own(play: Any, end: str, status: int, err: str) -> None:
    assert play(f"import sys; sys.exit({end})") == (status, "", err)


def test_a_traceback_begins_with_the_scripts_own_line(play: Any) -> None:
    ran = play(
        """
        def divide(by):
            return 1 / by

        divide(0)
        """
    )
    assert ran.status == 1
    lines = ran.err.splitlines()
    assert lines[0] == "Traceback (most recent call last):"
    assert lines[1].endswith('script.py", line 5, in <module>')
    assert lines[2].strip() == "divide(0)"
    assert lines[-1] == "ZeroDivisionError: division by zero"


def test_a_syntax_error_is_shown(play: Any) -> None:
    ran = play("print('one'\n")
    assert (ran.status, ran.out) == (1, "")
    assert "script.py" in ran.err
    assert "SyntaxError" in ran.err


def test_a_refusal_is_one_sentence_with_its_line(play: Any) -> None:
    ran = play(
        """
        from vllm import LLM
        llm = LLM("tiny", num_gpu_blocks_override=8)
        llm.llm_engine.add_request("A", "", None)
        """
    )
    assert ran.status == 1
    assert "script.py, line 4: request 'A' has an empty prompt" in ran.err
    assert "Traceback" not in ran.err


def test_a_script_may_catch_a_refusal(play: Any) -> None:
    ran = play(
        """
        from vllm import SamplingParams
        try:
            SamplingParams(temperature=-1)
        except ValueError as error:
            print("caught:", error)
        """
    )
    assert (ran.status, ran.out[:20]) == (0, "caught: temperature ")


def test_a_missing_script_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"no script .*nowhere\.py"):
        compat.run(tmp_path / "nowhere.py", [])


def test_interrupting_it_is_not_swallowed_and_leaves_nothing_behind(play: Any) -> None:
    with pytest.raises(KeyboardInterrupt):
        play("import vllm; raise KeyboardInterrupt")
    assert "vllm" not in sys.modules
