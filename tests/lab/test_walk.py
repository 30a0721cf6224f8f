"""`pellucid step`: each situation shows its phenomenon, and the sentences say what the engine did."""

from __future__ import annotations

import argparse
import io
import json
import os
import pty
import re
import select
import sys
from itertools import pairwise
from typing import Any

import msgspec
import pytest

from pellucid.errors import ConfigError
from pellucid.kv.acts import Admit, Evict, Launch, Lookup, MissReason, Preempt, Return, Share, Take
from pellucid.kv.fold import Fold
from pellucid.lab import walk_command
from pellucid.lab.claims.holes import longest_run
from pellucid.lab.pellucid_subject import PellucidLaboratory
from pellucid.lab.situations import SITUATIONS
from pellucid.lab.walk import Stride, Walk
from pellucid.model import LoadedModel

NAMES = list(SITUATIONS)
ESCAPE = "\x1b"


def walk_of(model: LoadedModel, name: str, **options: Any) -> Walk:
    return Walk(SITUATIONS[name], PellucidLaboratory(model, **{**SITUATIONS[name].options, **options}))


def walked(model: LoadedModel, name: str, **options: Any) -> Walk:
    walk = walk_of(model, name, **options)
    assert list(walk) == walk.strides
    return walk


def acts_of(walk: Walk, kind: type, name: str) -> list[Any]:
    return [act for act in walk.acts() if isinstance(act, kind) and act.request == name]


def stride_with(walk: Walk, kind: type, name: str) -> Stride:
    return next(s for s in walk.strides if any(isinstance(act, kind) and act.request == name for act in s.acts))


def parsed(*arguments: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    walk_command.add_arguments(parser)
    return parser.parse_args(arguments)


def printed(walk: Walk) -> str:
    out = io.StringIO()
    walk_command.show(walk, out)
    return out.getvalue()


def test_hole_new_takes_what_r1_left_and_more_than_lay_side_by_side(tiny: LoadedModel) -> None:
    walk = walked(tiny, "hole")
    served = stride_with(walk, Take, "NEW")
    (take,) = acts_of(walk, Take, "NEW")
    (left,) = acts_of(walk, Return, "R1")
    free = served.before.pool.reuse_order
    assert set(take.blocks) & set(left.blocks)
    assert len(take.blocks) > len(longest_run(free))
    for name in ("R0", "R2"):
        assert served.after.table(name) == served.before.table(name)
    (sentence,) = [line for line in served.told.plan if line.startswith("NEW is admitted")]
    assert f"need {len(take.blocks)} blocks, and {len(free)} are reclaimable" in sentence
    assert "It takes blocks 22-24 14-9; 22-24 were unused, 14-9 were held last by R1." in sentence
    assert f"At most {len(longest_run(free))} lie side by side" in sentence
    waiting = next(s for s in walk.strides if "NEW" in {r.name for r in s.after.requests})
    assert "NEW waits: its 33 tokens need 9 blocks, and 3 are reclaimable." in waiting.told.plan
    assert waiting.before.pool.reclaimable == 3


def test_sharing_two_then_three_live_owners(tiny: LoadedModel) -> None:
    walk = walked(tiny, "sharing")
    bob, carol = stride_with(walk, Share, "bob"), stride_with(walk, Share, "carol")
    assert [bob.after.pool.owners[block] for block in bob.after.table("bob")[:3]] == [2, 2, 2]
    assert bob.after.table("bob")[:3] == bob.after.table("alice")[:3] == (1, 2, 3)
    assert "bob shares blocks 1-3 with alice: 2 owners each now, nothing copied." in bob.told.plan
    assert carol.after.pool.owners[1:4] == (3, 3, 2)
    assert "carol shares blocks 1-2 with alice and bob: 3 owners each now, nothing copied." in carol.told.plan
    (lookup,) = acts_of(walk, Lookup, "carol")
    assert [miss.reason for miss in lookup.missed] == [MissReason.LAST_BLOCK]
    left = stride_with(walk, Return, "alice")
    assert any("3-1 stay with their other owners; 4 stays cached" in line for line in left.told.result)


def test_revival_from_cached_and_a_miss_after_an_eviction(tiny: LoadedModel) -> None:
    walk = walked(tiny, "revival")
    bob = stride_with(walk, Share, "bob")
    (share,) = acts_of(walk, Share, "bob")
    assert share.revived == share.blocks == (1, 2, 3)
    assert [bob.before.pool.owners[block] for block in share.revived] == [0, 0, 0]
    assert set(share.revived) <= set(bob.before.pool.reuse_order)
    assert any(line.startswith("bob revives blocks 1-3") and "12 tokens" in line for line in bob.told.plan)
    (evicted,) = acts_of(walk, Evict, "flood")
    assert evicted.blocks == (3,)
    assert any(
        "21 free blocks are not enough for 22, so cached block 3" in line for s in walk.strides for line in s.told.plan
    )
    (lookup,) = acts_of(walk, Lookup, "carol")
    assert (lookup.missed[0].reason, lookup.missed[0].by) == (MissReason.EVICTED, "flood")


@pytest.mark.parametrize("asynchronous", [False, True])
def test_pressure_a_preemption_that_changes_no_token(tiny: LoadedModel, asynchronous: bool) -> None:
    walk = walked(tiny, "pressure", async_scheduling=asynchronous)
    (preempt,) = acts_of(walk, Preempt, "young")
    assert preempt.by == "old"
    assert len(acts_of(walk, Admit, "young")) == 2
    stride = stride_with(walk, Preempt, "young")
    reason = next(line for line in stride.told.plan if line.startswith("old needs 1 more block, and 0 are reclaimable"))
    assert "young, which was admitted last, is pre-empted for old. It returns 12 blocks:" in reason
    assert ("24 is fenced, as step 2 may still write there" in reason) == asynchronous
    behind = next(s for s in walk.strides if any(line.startswith("small waits behind young") for line in s.told.plan))
    assert behind.after.request("small").blocks == ()
    assert {name: output.tokens for name, output in walk.outputs.items()} == {
        name: output.tokens for name, output in walk.undisturbed().items()
    }
    assert len(walk.outputs["young"].tokens) == 5


def test_pressure_on_a_chunk_of_a_prompt_is_told_with_its_numbers(tiny: LoadedModel) -> None:
    walk = walked(tiny, "pressure", max_num_batched_tokens=20)
    stride = stride_with(walk, Preempt, "young")
    view = stride.before.request("young")
    assert (view.tokens - view.slots, view.slots // 4) == (15, 8)
    (sentence,) = [line for line in stride.told.plan if line.startswith("young needs")]
    assert sentence.startswith(
        "young needs 4 more blocks, and 3 are reclaimable: it was admitted last, so it pre-empts"
    )
    assert "young pre-empted itself once" in walk.situation.seen(walk).sentence


def test_chunked_a_prompt_in_chunks_beside_decodes(tiny: LoadedModel) -> None:
    walk = walked(tiny, "chunked")
    chunks = []
    for act in walk.acts():
        if isinstance(act, Launch) and "essay" in act.requests and sum(chunks) < walk.length("essay"):
            counts = dict(zip(act.requests, act.counts, strict=True))
            chunks.append(counts.pop("essay"))
            assert counts == {"chat": 1, "talk": 1}
    assert chunks == [6, 6, 6, 5]
    stride = walk.strides[2]
    assert stride.before.request("essay").slots == 6
    assert stride.told.plan[-1] == (
        "The model computes 8 tokens (the whole budget): essay 6, tokens 7-12 of its prompt of 23; chat and talk 1 "
        "each, their newest."
    )


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("options", [{}, {"async_scheduling": True}, {"block_size": 16}, {"reuse_policy": "vllm-0.23"}])
def test_each_walk_shows_what_it_is_for_and_its_sentences_add_up(
    tiny: LoadedModel, name: str, options: dict[str, Any]
) -> None:
    walk = walked(tiny, name, **options)
    assert walk.situation.seen(walk).arose
    for stride in walk.strides:
        assert stride.violations == ()
        fold = Fold(stride.before)
        for act in stride.acts:
            fold.apply(act)
        assert fold.snapshot() == stride.after
        for waits in re.finditer(r"(\w+) waits: its (\d+) tokens need (\d+)", " ".join(stride.told.plan)):
            view = stride.after.request(waits[1])
            assert view.blocks == ()
            assert int(waits[3]) == -(-int(waits[2]) // stride.after.pool.block_size)
        for sentence in (*stride.told.plan, *stride.told.result):
            if returns := re.search(r"^(\w+) ends .* It returns (\d+) block", sentence):
                (act,) = [act for act in stride.acts if isinstance(act, Return) and act.request == returns[1]]
                assert len(act.blocks) == int(returns[2])


@pytest.mark.parametrize(
    ("name", "options", "words"),
    [
        ("hole", {"num_gpu_blocks_override": 60}, "needed no hole"),
        ("sharing", {"enable_prefix_caching": False}, "nobody found another's"),
        ("revival", {"enable_prefix_caching": False}, "bob revived nothing"),
        ("pressure", {"num_gpu_blocks_override": 60}, "59 usable blocks were enough"),
        ("chunked", {"max_num_batched_tokens": 64}, "fitted into one step of 64"),
    ],
)
def test_what_does_not_arise_is_not_claimed(tiny: LoadedModel, name: str, options: dict[str, Any], words: str) -> None:
    seen = (walk := walked(tiny, name, **options)).situation.seen(walk)
    assert not seen.arose
    assert words in seen.sentence


def test_a_pool_or_a_model_too_small_is_refused_before_the_first_step(tiny: LoadedModel) -> None:
    with pytest.raises(ConfigError, match=r"22 blocks \(flood\), and the pool has 9 usable; give it 23"):
        walk_of(tiny, "revival", num_gpu_blocks_override=10)
    with pytest.raises(ConfigError, match=r"\(old\) with blocks of 256, and the model takes 2048"):
        walk_of(tiny, "pressure", block_size=256)


@pytest.mark.parametrize("name", NAMES)
def test_a_script_is_plain_text_of_80_columns(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert walk_command.main(parsed(name, "--script")) == 0
    out, err = capsys.readouterr()
    assert err == ""
    assert out.isascii()
    assert ESCAPE not in out
    assert max(map(len, out.splitlines())) <= 80
    assert out.startswith(f"{name}: ")
    assert "\nwatch   " in out
    assert "\nseen    " in out
    assert "no invariant was broken" in out
    following = dict(zip(NAMES, [*NAMES[1:], ""], strict=True))[name]
    assert f"step {following}" in out.splitlines()[-2] if following else "prove" in out.splitlines()[-2]
    assert walk_command.PROMPT not in out


def test_the_map_marks_what_changed(tiny: LoadedModel) -> None:
    text = printed(walk_of(tiny, "hole"))
    assert (
        "before     0  #AAAAAAABBBBBBBC CCCCCC...\n"
        "after      0  #AAAAAAA.......C CCCCCC...\n"
        "                      ^^^^^^^\n"
        "A R0   B R1   C R2   # reserved   . free\n"
    ) in text


def test_a_large_pool_is_drawn_row_by_row(tiny: LoadedModel) -> None:
    text = printed(walk_of(tiny, "sharing", num_gpu_blocks_override=100))
    assert max(map(len, text.splitlines())) <= 80
    assert "before    96  ....\nafter     96  ....\n" in text


def test_json_is_one_object_a_step_and_ends_as_the_engine(
    tiny: LoadedModel, capsys: pytest.CaptureFixture[str]
) -> None:
    assert walk_command.main(parsed("pressure", "--json")) == 0
    lines = capsys.readouterr().out.splitlines()
    walk = walked(tiny, "pressure")
    assert [json.loads(line)["step"] for line in lines] == list(range(1, len(walk.strides) + 1))
    strides = [msgspec.json.decode(line, type=Stride) for line in lines]
    assert strides == walk.strides
    assert strides[-1].after == walk.snapshot
    assert all(one.after == two.before for one, two in pairwise(strides))


# -- at a terminal ---------------------------------------------------------------------------------


class Terminal:
    """`pellucid step hole` on a pseudo-terminal."""

    def __init__(self) -> None:
        self.pid, self._fd = pty.fork()
        if self.pid == 0:
            os.environ |= {"TERM": "xterm-256color", "COLUMNS": "80", "NO_COLOR": ""}
            os.execv(sys.executable, [sys.executable, "-m", "pellucid", "step", "hole"])

    def type(self, text: str) -> None:
        os.write(self._fd, text.encode())

    def until(self, text: str) -> str:
        """What comes up to ``text`` or, if it never comes, to the end."""
        seen = b""
        while text.encode() not in seen and select.select([self._fd], [], [], 60)[0]:
            try:
                seen += os.read(self._fd, 65536)
            except OSError:  # the other side has gone
                break
        return seen.decode()

    def close(self) -> int:
        status = os.waitpid(self.pid, 0)[1]
        os.close(self._fd)
        return os.waitstatus_to_exitcode(status)


def test_enter_is_one_step_and_q_quits() -> None:
    terminal = Terminal()
    opening = terminal.until(walk_command.PROMPT)
    assert "-- step" not in opening
    steps = []
    for _ in range(2):
        terminal.type("\n")
        steps.append(terminal.until(walk_command.PROMPT))
    terminal.type("q\n")
    rest = terminal.until("-- step")
    assert terminal.close() == 0
    assert ["-- step 1 " in steps[0], "-- step 2 " in steps[0]] == [True, False]
    assert ["-- step 1 " in steps[1], "-- step 2 " in steps[1]] == [False, True]
    assert ESCAPE in steps[0]
    assert "-- step" not in rest
    assert "seen" not in rest


def test_enter_to_the_end_shows_what_was_seen(tiny: LoadedModel) -> None:
    out = io.StringIO()
    walk_command.show(walk_of(tiny, "hole"), out, io.StringIO("\n" * 4))
    assert out.getvalue().count(walk_command.PROMPT) == 4
    assert "\nseen    NEW got its 9 blocks" in out.getvalue()


def test_an_end_of_input_quits(tiny: LoadedModel) -> None:
    out = io.StringIO()
    walk_command.show(walk_of(tiny, "hole"), out, io.StringIO("\n"))
    assert "-- step 1 " in out.getvalue()
    assert "-- step 2 " not in out.getvalue()
