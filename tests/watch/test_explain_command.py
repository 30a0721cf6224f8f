"""Why a request hit or missed: asked of a live engine, of a recording and of a saved journal."""

from __future__ import annotations

import argparse
import json
import re
from pathlib import Path

import pytest

from pellucid.errors import UnknownRequest
from pellucid.kv.acts import Lookup, LookupKind, Miss, MissReason
from pellucid.kv.explain import Explanation, lasting
from pellucid.kv.journal import Journal
from pellucid.watch import explain_command
from view.pictures import snapshot
from watch.driven import Driven, Run, pellucid
from watch.test_replay import long_journal


def explained(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    parser = argparse.ArgumentParser()
    explain_command.add_arguments(parser)
    assert explain_command.main(parser.parse_args([*arguments, "--lang", "en"])) == 0
    return " ".join(capsys.readouterr().out.split())


def test_a_recording_says_who_took_the_blocks_and_how_long_ago(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    said = explained(capsys, str(run.file), "erin")
    assert re.match(
        r"erin: asked 33 tokens, hit \d+ \(step \d+\); blocks? [\d-]+ (was|were) evicted \d+ s ago for flood", said
    )
    assert "the last token is shorter than a block of 4" in said
    hit, evicted = (int(re.search(pattern, said)[1]) for pattern in (r"hit (\d+)", r"missed: evicted (\d+)"))  # type: ignore[index]
    assert hit + evicted + 1 == 33
    assert evicted > 0
    assert said.endswith("erin is no longer live: it ended in step 8 (length).")


def test_the_same_for_a_program(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    told = json.loads(explained(capsys, str(run.file), "erin", "--json"))
    assert told["missed"] == {
        reason: sum(miss["tokens"] for miss in told["lookup"]["missed"] if miss["reason"] == reason)
        for reason in ("evicted", "shorter than a block")
    }
    assert set(told["ages"]) == {str(miss["step"]) for miss in told["lookup"]["missed"] if miss.get("step")}
    assert told["ended"] is True
    assert told["explanation"].startswith("erin: asked 33 tokens")


def test_a_saved_journal_knows_steps_and_no_times(run: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    long_journal(run).save(tmp_path / "run.jsonl")
    said = explained(capsys, str(tmp_path / "run.jsonl"), "erin")
    assert re.search(r"evicted at step \d+ for flood", said)
    assert " ago" not in said


def test_a_live_engine_is_asked_by_the_exact_name(folder: Path, engine: Driven) -> None:
    engine.add("grace", 7, 5)
    engine.add("graceful", 7, 5)
    engine.step(1)
    engine.abort("graceful")
    target = str(engine.process.pid)
    live = pellucid(folder, "explain", "grace")
    ended = pellucid(folder, "explain", target, "graceful")
    unknown = pellucid(folder, "explain", target, "grac")
    engine.abort("grace")
    assert (live.returncode, live.stderr) == (0, "")
    assert live.stdout.startswith("grace: asked 5 tokens, hit ")
    assert "no longer live" not in live.stdout
    assert "graceful is no longer live" in ended.stdout
    assert unknown.returncode == 2
    assert "'grac'" in unknown.stderr
    assert "live: grace" in unknown.stderr


def test_a_name_that_a_recording_does_not_have(run: Run) -> None:
    parser = argparse.ArgumentParser()
    explain_command.add_arguments(parser)
    with pytest.raises(UnknownRequest, match="no request is named 'nobody'"):
        explain_command.main(parser.parse_args([str(run.file), "nobody"]))


def test_ages_and_steps_in_one_sentence() -> None:
    missed = (
        Miss(MissReason.EVICTED, 4, 2, 17, "bob"),
        Miss(MissReason.WITHDRAWN, 8, 3, 20, "carol"),
    )
    lookup = Lookup(30, "alice", LookupKind.FIRST, 20, 8, missed)
    assert str(Explanation("alice", True, 4, lookup, ages={17: 41.2})) == (
        "alice: asked 20 tokens, hit 8 (step 30); block 2 was evicted 41 s ago for bob; "
        "blocks 3-4 were withdrawn at step 20, as carol left before computing it."
    )


def test_an_admission_that_nobody_saw_is_not_denied(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Journal(snapshot(20, {"ran before": [1, 2], "waits": []})).save(tmp_path / "late.jsonl")
    said = explained(capsys, str(tmp_path / "late.jsonl"), "ran before")
    assert said == "ran before: its admission was not seen, so what it asked for is not known."
    assert "not admitted yet" in explained(capsys, str(tmp_path / "late.jsonl"), "waits")


@pytest.mark.parametrize(
    ("seconds", "words"), [(0.2, "0 s"), (119, "119 s"), (125, "2 min"), (7200, "2 h"), (200_000, "2 days")]
)
def test_lengths_of_time(seconds: float, words: str) -> None:
    assert lasting(seconds) == words
