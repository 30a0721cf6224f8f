"""Playing back: every frame is what was watched, forwards and backwards, and each moment is found."""

from __future__ import annotations

import argparse
import json
import random
from pathlib import Path

import pytest

from pellucid.errors import ConfigError, JournalError
from pellucid.kv.journal import Journal
from pellucid.stream.messages import Picture, Step
from pellucid.watch import replay_command
from pellucid.watch.moment import parse_moment
from pellucid.watch.player import Player
from pellucid.watch.tape import Tape, read_tape
from view.pictures import snapshot
from watch.driven import Run


def replayed(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    parser = argparse.ArgumentParser()
    replay_command.add_arguments(parser)
    assert replay_command.main(parser.parse_args(arguments)) == 0
    return capsys.readouterr().out


def test_every_line_is_the_one_that_was_watched(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    lines = [json.loads(line) for line in replayed(capsys, str(run.file), "--json").splitlines()]
    for line in (*lines, *run.told):
        del line["rate"]
    assert lines == run.told


def test_at_is_a_step_a_time_or_a_share(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    def at(moment: str) -> dict[str, object]:
        answer: dict[str, object] = json.loads(replayed(capsys, str(run.file), "--once", "--json", "--at", moment))
        return answer

    for told in run.told:
        assert at(str(told["step"]))["step"] == told["step"]
    seconds = run.told[4]["time"] - run.told[0]["time"]
    assert at(f"{seconds + 1e-4:.6f}s")["requests"] == run.told[4]["requests"]
    assert at("0%")["requests"] == run.told[0]["requests"]
    assert at("100%")["requests"] == at("1:00:00")["requests"] == run.told[-1]["requests"]


@pytest.mark.parametrize("text", ["", "x", "-1", "1:2:3:4", "101%", "5 s"])
def test_what_is_no_moment_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="is no moment"):
        parse_moment(text)


def test_there_and_back_is_the_same(run: Run) -> None:
    tape = read_tape(run.file)
    forwards = [tape.scene(i) for i in range(tape.last + 1)]
    order = list(range(tape.last + 1)) * 3
    random.Random(7).shuffle(order)
    for position in order:
        assert tape.scene(position) == forwards[position]


def test_a_long_tape_comes_back_by_checkpoints(run: Run) -> None:
    journal = long_journal(run)
    acts = list(journal)
    frames: list[Picture | Step] = [Picture(time=0.0, snapshot=journal.base)]
    frames += [Step(seq=i, time=i / 10, acts=(act,)) for i, act in enumerate(acts, start=1)]
    frames += [Step(seq=i, time=i / 10, acts=()) for i in range(len(frames), 1000)]
    tape = Tape(frames, [frame.time for frame in frames])
    assert tape.scene(999).snapshot == journal.fold()
    for position in (len(acts) // 2, 900, 3, 0, 500, 64, 63):
        held = journal.base.acts + min(position, len(acts))
        assert tape.scene(position).snapshot == journal.fold(held)


def long_journal(run: Run) -> Journal:
    """The acts of ``run`` as a journal of its own."""
    tape = read_tape(run.file)
    first, *others = tape._frames
    assert isinstance(first, Picture)
    journal = Journal(first.snapshot)
    for step in others:
        assert isinstance(step, Step)
        for act in step.acts:
            journal.append(act)
    return journal


def test_a_saved_journal_plays_too(run: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    journal = long_journal(run)
    journal.save(tmp_path / "run.jsonl")
    lines = [json.loads(line) for line in replayed(capsys, str(tmp_path / "run.jsonl"), "--json").splitlines()]
    assert lines[-1]["requests"] == run.told[-1]["requests"]
    assert (lines[0]["watched"], lines[0]["time"], lines[0]["rate"]) == (None, None, None)
    assert [line["step"] for line in lines] == sorted({line["step"] for line in lines})
    assert "a saved journal" in replayed(capsys, str(tmp_path / "run.jsonl"), "--once")


def test_a_recording_that_was_cut_off_says_so_at_its_end(
    run: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cut = tmp_path / "cut.rec"
    cut.write_bytes(run.file.read_bytes()[:-20])
    assert "the recording breaks off here" in replayed(capsys, str(cut), "--once")
    assert "breaks off" not in replayed(capsys, str(cut), "--once", "--at", "0%")


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "neither a recording nor a journal"),
        (b"text\n", "neither"),
        (b'{"format":"x"}\n', "does not begin like a recording"),
    ],
)
def test_other_files_are_refused(content: bytes, words: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(content)
    with pytest.raises(JournalError, match=words):
        read_tape(tmp_path / "file")
    with pytest.raises(JournalError, match="cannot be read: No such file"):
        read_tape(tmp_path / "nothing")


def ten_seconds() -> Tape:
    """A frame a second."""
    frames = [Picture(time=0.0, snapshot=snapshot(10, {})), *(Step(seq=i, time=i, acts=()) for i in range(1, 11))]
    return Tape(frames, [float(i) for i in range(11)])


def test_the_player_keeps_time() -> None:
    player = Player(ten_seconds())
    for _ in range(25):
        player.advance(0.1)
    assert (player.position, player.playing) == (2, True)
    player.press("+")
    player.advance(1.0)
    assert player.position == 4
    player.press(" ")
    player.advance(100.0)
    assert (player.position, player.playing) == (4, False)
    player.press(" ")
    player.advance(100.0)
    assert (player.position, player.playing) == (10, False)


@pytest.mark.parametrize(
    ("keys", "position"),
    [
        (["right"] * 3 + ["left"], 2),
        (["left"], 0),
        (["end", "right"], 10),
        (["G", "left", "left"], 8),
        (["end", "home"], 0),
        (["5"], 5),
        (["9", "g", "right"], 1),
        (["x", "", "\x00"], 0),
    ],
)
def test_keys_move_it(keys: list[str], position: int) -> None:
    player = Player(ten_seconds())
    for key in keys:
        player.press(key)
    assert player.position == position
