"""What `pellucid prove` prints, and how it ends."""

from __future__ import annotations

import argparse
import io
import json
from typing import Any

import msgspec
import pytest
from rich.console import Console

from lab import faults
from pellucid.errors import ConfigError, ModelError
from pellucid.lab import CLAIMS, Report, command, prove
from pellucid.lab.pellucid_subject import PellucidLaboratory
from pellucid.lab.scenarios import SCENARIOS
from pellucid.lab.terminal import lines, print_report
from pellucid.lab.trial import Plays, play, report, trial
from pellucid.lang import encoded
from pellucid.native import native


def parsed(*arguments: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    command.add_arguments(parser)
    return parser.parse_args(arguments)


def broken(plays: Plays) -> Plays:
    """The same trial, of an engine that answers otherwise on scattered blocks."""
    other = Plays()
    other.recordings = {**plays.recordings, "holes": faults.another_token(plays.recordings["holes"], "NEW")}
    return other


def test_a_pipe_gets_plain_text_of_80_columns(capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(parsed("--model", "tiny")) == 0
    out, err = capsys.readouterr()
    assert "\x1b" not in out
    assert out.isascii()
    assert max(map(len, out.splitlines())) <= 80
    assert out.count(" PROVED ") == len(CLAIMS)
    assert f"{len(CLAIMS)} claims: {len(CLAIMS)} proved, 0 refuted, 0 not observable" in out
    assert "NEW took           27 blocks: 67-79 44-31" in out
    assert "     0  #AAAAAAAAAAAAAAA AAAAAAA........D DDDDDDDDDDDDDCCC CCCCCCCCCCCCCCCC" in out
    assert err == ""


def test_a_terminal_gets_the_same_in_colours(plays: Plays) -> None:
    plain, coloured = io.StringIO(), io.StringIO()
    print_report(report(plays), plain)
    console = Console(file=coloured, force_terminal=True, color_system="standard", width=80)
    for line in lines(report(plays)):
        console.print(line, soft_wrap=True, highlight=False)
    assert "\x1b[" in coloured.getvalue()
    assert "\x1b" not in plain.getvalue()


@pytest.mark.parametrize("width", [60, 80])
def test_no_line_is_wider_than_the_terminal(plays: Plays, width: int) -> None:
    for trial_report in (report(plays), report(broken(plays))):
        assert max(line.cell_len for line in lines(trial_report, width)) <= width


def test_what_to_do_next_is_of_the_engine_that_was_judged(plays: Plays) -> None:
    ours, out = report(plays), io.StringIO()
    theirs = msgspec.structs.replace(ours, about=msgspec.structs.replace(ours.about, engine="vllm 0.32.0"))
    print_report(theirs, out)
    assert "vllm serve MODEL" in out.getvalue()
    assert "--model tiny" not in out.getvalue()


def test_json_is_one_object_with_evidence_in_every_entry(capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(parsed("--model", "tiny", "--json", "--num-gpu-blocks-override", "80")) == 0
    (line,) = capsys.readouterr().out.splitlines()
    data: dict[str, Any] = json.loads(line)
    assert [claim["id"] for claim in data["claims"]] == [claim.id for claim in CLAIMS]
    for claim in data["claims"]:
        assert claim["verdict"] == "proved"
        assert claim["scope"]
        assert claim["evidence"]
    assert data["verdicts"] == {"proved": len(CLAIMS), "refuted": 0, "not observable": 0}
    assert data["pool"] == {"block_size": 16, "total": 80, "usable": 79, "nbytes": 655_360}


def test_json_reads_back_as_it_was(plays: Plays) -> None:
    for original in (report(plays), report(broken(plays))):
        assert msgspec.json.decode(encoded(original), type=Report) == original


def test_the_exit_status_is_1_if_anything_is_refuted(plays: Plays, monkeypatch: pytest.MonkeyPatch) -> None:
    assert report(plays).exit_status == 0
    result = report(broken(plays))
    assert result.exit_status == 1
    monkeypatch.setattr("pellucid.lab.trial.play_for", lambda *_, **__: broken(plays))
    out = io.StringIO()
    assert prove("tiny", stream=out) == 1
    text = out.getvalue()
    assert " REFUTED   4. Holes are re-used" in text
    assert "Output token 3 of NEW differs" in text
    assert f"{len(CLAIMS) - 1} proved, 1 refuted" in text
    assert "report it" in text


def test_what_did_not_arise_is_said_and_fails_nothing() -> None:
    out = io.StringIO()
    assert prove("tiny", {"num_gpu_blocks_override": 3}, stream=out) == 0
    assert " NOT OBSERVABLE   4. Holes are re-used" in out.getvalue()
    assert "no room for three" in out.getvalue()


def test_chosen_claims_are_judged_alone_on_what_they_need(capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(parsed("--model", "tiny", "--json", "--claim", "holes", "--claim", "taken-as-used")) == 0
    data = json.loads(capsys.readouterr().out)
    assert [claim["id"] for claim in data["claims"]] == ["taken-as-used", "holes"]
    needed = [scenario for scenario in SCENARIOS if scenario.name in ("mixed", "holes", "alone")]
    assert data["steps"] == sum(run.steps for run in play(PellucidLaboratory("tiny"), needed).recordings.values())


def test_a_claim_keeps_its_number(capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(parsed("--model", "tiny", "--claim", "holes")) == 0
    out = capsys.readouterr().out
    assert " PROVED   4. Holes are re-used" in out
    assert "\n1 claim: 1 proved, 0 refuted, 0 not observable; 11 steps in all.\n" in out


def test_a_claim_of_one_s_own_has_no_number() -> None:
    (holes,) = (claim for claim in CLAIMS if claim.id == "holes")
    out = io.StringIO()
    print_report(trial(PellucidLaboratory("tiny"), [holes._replace(id="ours")]), out)
    assert " PROVED   Holes are re-used" in out.getvalue()


def test_an_unknown_claim_is_refused_before_the_model_is_loaded() -> None:
    with pytest.raises(ConfigError, match=r"there is no claim 'hole'; the claims are pool-fixed, .*holes, .*journal"):
        prove("nothing", claims=["holes", "hole"])


def test_a_claim_whose_only_scenario_cannot_be_played() -> None:
    out = io.StringIO()
    assert prove("tiny", {"num_gpu_blocks_override": 3}, claims=["holes"], stream=out) == 0
    assert "no room for three" in out.getvalue()
    assert "3 blocks of 16 tokens" in out.getvalue()
    assert "1 claim: 0 proved, 0 refuted, 1 not observable; 0 steps" in out.getvalue()


def test_wrong_options_are_refused_before_anything_runs() -> None:
    with pytest.raises(ConfigError, match="power of two"):
        prove("tiny", {"block_size": 12})
    with pytest.raises(ConfigError, match="no option 'blocksize'"):
        prove("tiny", {"blocksize": 16})
    with pytest.raises(ModelError, match="not a model"):
        prove("nothing")


def test_command_line_options_reach_the_engine(capsys: pytest.CaptureFixture[str]) -> None:
    options = ("--block-size", "8", "--dtype", "bfloat16", "--max-model-len", "500", "--async-scheduling")
    assert command.main(parsed("--model", "tiny", "--json", *options)) == 0
    data = json.loads(capsys.readouterr().out)
    assert (data["about"]["dtype"], data["about"]["max_model_len"], data["about"]["exact"]) == (
        "bfloat16",
        500,
        native().multiplies_bfloat16,  # the compiled kernels are batch-invariant, torch's are not
    )
    assert data["pool"]["block_size"] == 8
    assert data["pool"]["usable"] == 158
