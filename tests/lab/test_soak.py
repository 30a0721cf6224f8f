"""A soak that finds nothing where nothing is wrong, and each planted fault where one is."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from msgspec.structs import replace

from pellucid.cli import main
from pellucid.engine.core import EngineCore
from pellucid.engine.scheduler import Scheduler
from pellucid.errors import ConfigError
from pellucid.kv import manager, table
from pellucid.kv.manager import KVManager
from pellucid.kv.pool import BlockPool
from pellucid.lab import model_bed
from pellucid.lab.bed import Bed, EchoBed, Received, Reference, bed
from pellucid.lab.echo import Echo
from pellucid.lab.load import Abort, Add, Case, Settings, draw
from pellucid.lab.model_bed import ModelBed
from pellucid.lab.round import PATIENCE, Kind, Round
from pellucid.lab.shrink import Shrinker
from pellucid.lab.soak import read, replay, soak, write
from pellucid.model import LoadedModel
from pellucid.runtime.runner import Runner

Plant = Callable[[pytest.MonkeyPatch], None]
FOREVER = 1e6


# -- nothing is wrong ----------------------------------------------------------------------------------


def test_a_soak_of_tiny_finds_nothing_and_something_happens(tiny: LoadedModel) -> None:
    report = soak("tiny", ModelBed(tiny), 5, seconds=FOREVER, rounds=5)
    assert report.finding is None
    assert report.exit_status == 0
    tally = report.tally
    assert tally.rounds == 5
    assert tally.requests > tally.compared > tally.requests - tally.aborts > 0
    assert tally.audits > tally.steps
    assert (
        min(tally.preemptions, tally.hit_tokens, tally.hit_blocks, tally.evictions, tally.moves, tally.output_tokens)
        > 0
    )


def test_without_a_model_every_setting_and_every_kind_of_request_is_met() -> None:
    report = soak("none", bed("none"), 0, seconds=FOREVER, rounds=40)
    assert report.finding is None
    cases = [draw("none", 0, number) for number in range(40)]
    for name in Settings.__struct_fields__:
        assert len({getattr(case.settings, name) for case in cases}) > 1, name
    adds = [action for case in cases for action in case.actions if isinstance(action, Add)]
    for name in Add.__struct_fields__:
        assert len({getattr(add, name) for add in adds}) > 1, name


def test_the_same_seed_is_the_same_soak() -> None:
    first, second = (soak("none", bed("none"), 3, seconds=FOREVER, rounds=5).tally for _ in range(2))
    assert first == second
    assert draw("none", 3, 4) == draw("none", 3, 4) != draw("none", 4, 4)


# -- planted faults ------------------------------------------------------------------------------------


def no_fences(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Scheduler, "_writing", lambda self, sequence: None)


def shares_uncounted(patch: pytest.MonkeyPatch) -> None:
    honest = BlockPool.share

    def share(self: BlockPool, blocks: Any) -> None:
        honest(self, [block for block in blocks if not block.owners])
        self.taken = sum(block.owners for block in self.blocks) + self.returned

    patch.setattr(BlockPool, "share", share)


def hash_without_namespace(patch: pytest.MonkeyPatch) -> None:
    honest = table.identity
    patch.setattr(table, "identity", lambda parent, tokens, space: honest(parent, tokens, b""))


def salt_ignored_everywhere(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(manager, "namespace", lambda salt, adapter: b"")


def abort_keeps_blocks(patch: pytest.MonkeyPatch) -> None:
    honest = KVManager.close

    def close(self: KVManager, table: Any, reason: str, writing: Any) -> None:
        if reason == "abort":
            table.blocks = []
        honest(self, table, reason, writing)

    patch.setattr(KVManager, "close", close)


def shares_unequal_prefixes(patch: pytest.MonkeyPatch) -> None:
    honest = table.identity
    patch.setattr(table, "identity", lambda parent, tokens, space: honest(parent, [0] * len(tokens), space))


def a_wrong_block_in_the_plan(patch: pytest.MonkeyPatch) -> None:
    """The accounting is right, and what the runner gets is not."""
    honest = Echo.launch

    def launch(self: Echo, plan: Any) -> None:
        if len(plan.new_blocks) > 1:
            (handle, blocks), (_, others), *rest = plan.new_blocks
            plan = replace(plan, new_blocks=((handle, blocks), (plan.new_blocks[1][0], blocks + others[1:]), *rest))
        honest(self, plan)

    patch.setattr(Echo, "launch", launch)


def another_token_in_company(target: type, at: int) -> Plant:
    """The last of ``at`` sampling rows gets another token."""

    def plant(patch: pytest.MonkeyPatch) -> None:
        honest = target.collect  # type: ignore[attr-defined]

        def collect(self: Any) -> Any:
            result = honest(self)
            if len(result.tokens) < at:
                return result
            return replace(result, tokens=(*result.tokens[:-1], result.tokens[-1] ^ 1))

        patch.setattr(target, "collect", collect)

    return plant


def never_admits(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Scheduler, "_schedule_waiting", lambda self, draft: None)


def forgets_a_request(patch: pytest.MonkeyPatch) -> None:
    """A pre-empted request is dropped from the queue and from the books."""
    honest = Scheduler._preempt

    def preempt(self: Scheduler, victim: Any, by: Any, row: int, draft: Any) -> bool:
        before = honest(self, victim, by, row, draft)
        self.waiting.remove(victim)
        self.kv.close(victim.table, "abort", None)
        del self._live[victim.name]
        victim.finish_reason = "abort"
        return before

    patch.setattr(Scheduler, "_preempt", preempt)


def raises_under_pressure(patch: pytest.MonkeyPatch) -> None:
    def preempt(self: Scheduler, *arguments: Any) -> bool:
        raise ZeroDivisionError("no victim")

    patch.setattr(Scheduler, "_preempt", preempt)


def never_collects(patch: pytest.MonkeyPatch) -> None:
    """Aborted requests leave, and what was launched for them stays under way."""
    honest = EngineCore._commit_down_to

    def commit(self: EngineCore, ahead: int) -> Any:
        return honest(self, ahead) if self.scheduler._live else []

    patch.setattr(EngineCore, "_commit_down_to", commit)


def one_step_too_many(patch: pytest.MonkeyPatch) -> None:
    """A fence never falls."""
    patch.setattr(BlockPool, "lift_fence", lambda self, step: [])


def moves_without_their_content(patch: pytest.MonkeyPatch) -> None:
    """Tables follow a move, and the KV stays where it was."""
    honest = Echo.launch
    patch.setattr(Echo, "launch", lambda self, plan: honest(self, replace(plan, copies=())))


def moves_for_one_owner(patch: pytest.MonkeyPatch) -> None:
    """The runner changes one table, where several hold the block."""
    honest = Echo.launch

    def launch(self: Echo, plan: Any) -> None:
        for block, to in plan.moves:
            holder = next((blocks for blocks in self._tables.values() if block in blocks), [])
            holder[:] = [to if each == block else each for each in holder]
        honest(self, replace(plan, moves=()))

    patch.setattr(Echo, "launch", launch)


PLANTED: list[tuple[str, Plant, set[str]]] = [
    ("none", no_fences, {"invariant I10"}),
    ("none", shares_uncounted, {"invariant I2"}),
    ("none", hash_without_namespace, {"invariant I6", "invariant I14"}),
    ("none", salt_ignored_everywhere, {"isolation"}),
    ("none", abort_keeps_blocks, {"invariant I2"}),
    ("none", shares_unequal_prefixes, {"invariant I6"}),
    ("none", a_wrong_block_in_the_plan, {"output"}),
    ("none", another_token_in_company(Echo, 3), {"output"}),
    ("none", moves_without_their_content, {"output"}),
    ("none", moves_for_one_owner, {"output"}),
    ("none", never_admits, {"stuck"}),
    ("none", never_collects, {"stuck"}),
    ("none", forgets_a_request, {"lost"}),
    ("none", raises_under_pressure, {"error ZeroDivisionError"}),
    ("none", one_step_too_many, {"invariant I1", "invariant I12"}),
    ("tiny", no_fences, {"invariant I10"}),
    ("tiny", another_token_in_company(Runner, 2), {"output"}),
]


@pytest.mark.parametrize(("model", "plant", "expected"), PLANTED, ids=lambda value: getattr(value, "__name__", None))
def test_a_planted_fault_is_found_shrunk_and_replayed(
    model: str, plant: Plant, expected: set[str], tiny: LoadedModel, tmp_path: Path
) -> None:
    engines: Bed = EchoBed() if model == "none" else ModelBed(tiny)
    file = tmp_path / "case.json"
    with pytest.MonkeyPatch.context() as patch:
        plant(patch)
        found = soak(model, engines, 11, seconds=FOREVER, rounds=60)
        assert found.exit_status == 1
        assert found.finding is not None
        failure = found.finding.failure
        assert f"{failure.kind} {failure.code}".strip() in expected, failure
        assert found.finding.case.requests < 10
        assert found.finding.case.actions[0].step == 0
        assert found.finding.case.requests <= draw(model, 11, found.finding.round).requests
        write(found.finding, file)
        assert read(file) == found.finding
        assert replay(read(file), engines) == failure
    assert replay(read(file), engines) is None


def test_the_baseline_is_checked_where_no_invariant_sees_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """A pool that says, when all have left, that it is not empty."""
    case = Case("none", Settings(num_gpu_blocks_override=5), (Add(step=0, name="a", prompt=(1, 2), max_tokens=2),))
    assert Round(case, EchoBed(), None).play() is None
    played = Round(case, EchoBed(), None)
    honest = played._engine.kv.snapshot
    monkeypatch.setattr(played, "_audit", lambda: None)
    one_held = replace(honest(), launched=(7,))
    monkeypatch.setattr(played._engine.kv, "snapshot", lambda: one_held, raising=False)
    failure = played.play()
    assert failure is not None
    assert failure.kind is Kind.BASELINE


def test_the_watchdog_waits_for_its_steps_and_no_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    never_admits(monkeypatch)
    case = Case("none", Settings(num_gpu_blocks_override=5), (Add(step=0, name="a", prompt=(1, 2), max_tokens=2),))
    failure = Round(case, EchoBed(), Reference(EchoBed())).play()
    assert failure is not None
    assert (failure.kind, failure.step) == (Kind.STUCK, PATIENCE)


def test_rounding_is_forgiven_and_a_wrong_token_is_not(tiny: LoadedModel, monkeypatch: pytest.MonkeyPatch) -> None:
    reference = Reference(ModelBed(tiny))
    for seed in (None, 1):
        request = Add(step=0, name="a", prompt=(1, 2, 3), max_tokens=1, seed=seed)
        answer = reference(request)
        other = Received("a", (answer.tokens[0] + 1,), answer.reason)
        assert not reference.close_call(request, other)
        with monkeypatch.context() as patch:
            patch.setitem(model_bed.NUDGES, torch.float32, 100.0)  # so that these two are "close"
            assert reference.close_call(request, other)
            assert not reference.close_call(request, other._replace(reason="stop"))
    assert not reference.close_call(request, answer._replace(tokens=()))
    assert not Reference(EchoBed()).close_call(request, other)


def test_two_close_calls_in_one_answer(tiny: LoadedModel) -> None:
    """Each difference is judged by itself, and what comes after it by the text that it has led to."""
    reference = Reference(ModelBed(tiny))
    request = Add(step=0, name="a", prompt=(1, 2, 3), max_tokens=5)
    first = reference(request).tokens[0]
    begun = reference(replace(request, prompt=(1, 2, 3, first, 9), max_tokens=3)).tokens
    twice = (
        first,
        9,
        begun[0],
        77,
        *reference(replace(request, prompt=(1, 2, 3, first, 9, begun[0], 77), max_tokens=1)).tokens,
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(model_bed.NUDGES, torch.float32, 100.0)
        assert reference.close_call(request, Received("a", twice, "length"))
        assert reference.close_call(request, Received("a", twice[:4], "abort"))
        assert not reference.close_call(request, Received("a", twice[:4], "length"))
    assert not reference.close_call(request, Received("a", twice, "length"))


# -- shrinking -----------------------------------------------------------------------------------------


def test_a_shrunk_case_has_nothing_that_could_go() -> None:
    """Fails if a request with salt and 5 tokens or more, whose name is aborted later, is there."""

    def fails(case: Case) -> bool:
        adds = {a.name: a for a in case.actions if isinstance(a, Add) and a.salt and len(a.prompt) >= 5}
        return any(isinstance(a, Abort) and a.name in adds and a.step > adds[a.name].step for a in case.actions)

    case = next(case for case in (draw("none", 1, number) for number in range(99)) if fails(case))
    small = Shrinker(case, fails).shrink()
    assert fails(small)
    add, abort = small.actions
    assert isinstance(add, Add)
    assert (len(add.prompt), add.max_tokens, add.step, abort.step) == (5, 1, 0, 1)
    assert add == Add(step=0, name=add.name, prompt=add.prompt, max_tokens=1, salt=add.salt)
    settings = case.settings
    plain = Settings(num_gpu_blocks_override=settings.num_gpu_blocks_override, block_size=settings.block_size)
    assert small.settings == plain
    assert Shrinker(case, fails, tries=0).shrink() == case


# -- the command ---------------------------------------------------------------------------------------


def test_the_command_reports_and_replays(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    command = ["soak", "--model", "none", "--rounds", "3", "--seed", "11"]
    assert main(command) == 0
    assert "Nothing is wrong" in capsys.readouterr().out
    with pytest.MonkeyPatch.context() as patch:
        no_fences(patch)
        assert main([*command, "--rounds", "60", "--json"]) == 1
        shown = capsys.readouterr()
        report = json.loads(shown.out)
        (file,) = tmp_path.iterdir()
        assert f"--replay {file.name}" in shown.err
        assert report["finding"] == json.loads(file.read_text())
        assert main(["soak", "--replay", str(file)]) == 1
        assert "fails as recorded" in capsys.readouterr().out
        assert main([*command, "--rounds", "60", "--out", "other.json"]) == 1
        assert "WRONG in round" in capsys.readouterr().out
        assert Path("other.json").read_text() == file.read_text()
    assert main(["soak", "--replay", str(file)]) == 0
    assert "passes now. Recorded: invariant I10" in capsys.readouterr().out
    assert main(["soak", "--replay", str(file), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["now"] is None


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--minutes", "0"], "--minutes must be more than 0"),
        (["--rounds", "0"], "--rounds must be at least 1"),
        (["--replay", "nowhere.json"], "cannot be read"),
        (["--model", "no-such-model"], "not a model that can be found"),
        (["--kernels", "abacus"], "There are no kernels 'abacus'"),
        (["--attention-backend", "abacus"], "There is no attention backend 'abacus'"),
        (["--device", "abacus"], "device 'abacus' is unknown"),
        (["--dtype", "int3"], "dtype 'int3' is not supported"),
        (["--model", "none", "--dtype", "float32"], "dtype: the engine without a model computes nothing"),
    ],
)
def test_refusals_are_one_sentence(
    arguments: list[str], words: str, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["soak", *arguments]) == 2
    assert words in capsys.readouterr().err


@pytest.mark.parametrize("content", ["", "{}", '{"case": 1}'])
def test_a_damaged_file_is_refused(content: str, tmp_path: Path) -> None:
    file = tmp_path / "case.json"
    file.write_text(content)
    with pytest.raises(ConfigError, match="is no case"):
        read(file)
