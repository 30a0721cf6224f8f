"""Every claim, proved on `tiny` under many settings, with the numbers it should find."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from lab import faults
from pellucid.kv.acts import AnyAct, Take
from pellucid.kv.invariants import Violation
from pellucid.kv.memory import PoolMemory
from pellucid.kv.snapshot import Snapshot
from pellucid.lab import CLAIMS, Laboratory, Subject, Verdict
from pellucid.lab.claims.holes import HOLES_REUSED, longest_run
from pellucid.lab.claims.reuse_order import REUSE_ORDER
from pellucid.lab.pellucid_subject import PellucidLaboratory, PellucidSubject
from pellucid.lab.recording import Recording
from pellucid.lab.scenario import NotArisen
from pellucid.lab.subject import About, Output
from pellucid.lab.trial import Plays, Report, report, trial
from pellucid.model import LoadedModel

SETTINGS: list[dict[str, Any]] = [
    {},
    {"block_size": 1},
    {"block_size": 8},
    {"block_size": 32},
    {"block_size": 256},
    {"num_gpu_blocks_override": 8},
    {"num_gpu_blocks_override": 70},
    {"num_gpu_blocks_override": 100},
    {"num_gpu_blocks_override": 1456},
    {"num_gpu_blocks_override": 20, "block_size": 4},
    {"max_model_len": 64},
    {"max_num_batched_tokens": 100},
    {"max_num_batched_tokens": 100, "block_size": 2},
    {"async_scheduling": True},
    {"async_scheduling": True, "max_num_batched_tokens": 100, "block_size": 8},
    {"reuse_policy": "vllm-0.23"},
    {"reuse_policy": "vllm-0.24"},
    {"kv_cache_tokens": 600},
]


@pytest.mark.parametrize("options", SETTINGS, ids=str)
def test_every_claim_is_proved(tiny: LoadedModel, options: dict[str, Any]) -> None:
    result = trial(PellucidLaboratory(tiny, **options))
    others = {proof.id: proof.reason for proof in result.claims if proof.verdict is not Verdict.PROVED}
    assert others == {}
    assert result.exit_status == 0


def evidence(result: Report, claim: str) -> dict[str, Any]:
    return next(proof.evidence for proof in result.claims if proof.id == claim)


def test_the_founding_experiment(plays: Plays) -> None:
    """Prompts of 6, 56 and 337 tokens, a common prefix of 61, and the hole of 22 blocks in 79."""
    result = report(plays)
    lengths = {
        row["name"]: (row["tokens"], row["blocks"], row["waste"])
        for row in evidence(result, "taken-as-used")["requests"]
    }
    assert (lengths["short"], lengths["medium"], lengths["long"]) == ((6, 1, 10), (56, 4, 8), (337, 22, 15))
    shared = evidence(result, "sharing")
    assert shared["live"]["equal_tokens"] == 61
    assert shared["live"]["hit_tokens"] == shared["revival"]["hit_tokens"] == 48
    assert (shared["live"]["owners_before"], shared["live"]["owners_after"]) == ([1] * 3, [2] * 3)
    assert (shared["revival"]["owners_before"], shared["revival"]["owners_after"]) == ([0] * 3, [1] * 3)
    found = {row["request"]: (row["equal_tokens"], row["hit_tokens"]) for row in shared["lookalikes"]}
    assert found == {"dave": (16, 16), "erin": (0, 0)}
    holes = evidence(result, "holes")
    assert holes["hole"] == list(range(23, 45))
    assert holes["free"] == [*range(23, 45), *range(67, 80)]
    assert holes["longest_run"] == list(range(23, 45))
    assert holes["table"] == [*range(67, 80), *range(44, 30, -1)]
    assert evidence(result, "pool-fixed")["engines"][0]["blocks"] == 80
    refused = evidence(result, "contiguous")
    assert (refused["needs_slots"], refused["longest_run"], refused["free_slots"]) == (429, 347, 560)
    assert refused["reserving_max_model_len"]["most_at_once"] == 1
    placed = evidence(result, "placement")
    assert [row["to"] for row in placed["moves"][:2]] == [79, 1]
    assert sum(row["vacated"] for row in placed["moves"]) == 6
    assert placed["tables"]["ann"]["placed"] == [3, 4, 5]


def test_the_sums_of_a_mixed_run(plays: Plays) -> None:
    """Held beside reserved, at every step of the longest run."""
    run = plays.recordings["mixed"]
    held = [len(view.blocks) for frame in run.frames for view in frame.running()]
    assert run.steps > 30
    assert evidence(report(plays), "taken-as-used")["block_steps"] == {"held": sum(held), "reserved": 79 * len(held)}


def test_what_the_survivors_take_of_a_hole_is_accounted_for(tiny: LoadedModel) -> None:
    """With blocks of one token the survivors grow at every step, and here the hole is what is taken first."""
    laboratory = PellucidLaboratory(tiny, block_size=1, reuse_policy="vllm-0.24")
    holes = evidence(trial(laboratory, [HOLES_REUSED]), "holes")
    assert holes["taken_meanwhile"]
    assert set(holes["taken_meanwhile"]).isdisjoint(holes["free"])
    assert set(holes["taken_meanwhile"]) <= set(holes["hole"])
    assert set(holes["taken_by"]) <= set(holes["survivors"])


def test_a_pre_emption_block_by_block(plays: Plays) -> None:
    """Three prompts of 62 tokens fill 12 blocks; the last to come gives up 4, finds 2 again and computes the rest."""
    found = evidence(report(plays), "preemption")
    (loss,) = found["preemptions"]
    assert (loss["name"], loss["by"], loss["tokens"]) == ("P2", "P0", 64)
    assert len(loss["blocks"]) == 4
    assert (len(loss["kept"]), loss["found"], found["tokens_recomputed"]) == (2, 32, 32)
    assert set(loss["kept"]) < set(loss["blocks"])
    before, after = (plays.recordings["pressure"].frames[i] for i in (loss["step"] - 1, loss["resumed"]))
    assert before.blocks("P2") == tuple(reversed(loss["blocks"]))
    assert after.blocks("P2")[:2] == tuple(loss["kept"])


def test_the_same_requests_scheduled_in_four_ways(plays: Plays) -> None:
    result = report(plays)
    chunks = {row["name"]: (row["chunks"], row["alone"]) for row in evidence(result, "chunking")["requests"]}
    assert chunks == {
        "five": ([8] * 5, [40]),
        "three": ([7, 7, 7, 2], [23]),
        "one": ([5, 4], [9]),
    }
    batching, ahead = evidence(result, "batching"), evidence(result, "planning-ahead")
    assert (batching["batched_plans"], batching["plans_alone"]) == (6, 18)
    assert batching["largest_batch"] == ["five", "three", "one"]
    assert (ahead["ahead"]["early"], ahead["in_step"]["early"]) == (5, 0)
    assert [row["name"] for row in ahead["left_meanwhile"]] == ["writer", "walker", "climber", "next 3"]
    assert [(row["blocks"], row["again"]) for row in ahead["left_meanwhile"][1:3]] == [([7], [7]), ([10], [10])]
    assert not any(row["early"] for row in ahead["left_meanwhile"])
    tokens = {plays.recordings[name].outputs["one"].tokens for name in ("one by one", "in step", "ahead", "chunked")}
    assert len(tokens) == 1


def test_salts_in_pairs(plays: Plays) -> None:
    rows = {row["request"]: row for row in evidence(report(plays), "isolation")["questions"]}
    assert {name: row["hit_tokens"] for name, row in rows.items()} == {
        **{"red": 0, "red too": 32, "tan": 0, "plain": 0},
        **{"red again": 32, "tan too": 32, "plain too": 32, "split": 0},
    }
    assert rows["red too"]["step"] == rows["tan"]["step"] == rows["plain"]["step"]
    assert rows["tan"]["other_salts"] == rows["plain"]["other_salts"] == rows["red too"]["same_salt"]
    assert set(rows["tan too"]["blocks"]) <= set(rows["tan too"]["same_salt"])


@pytest.mark.parametrize("policy", ["free-first", "vllm-0.23", "vllm-0.24"])
@pytest.mark.parametrize("options", [{}, {"async_scheduling": True}, {"block_size": 4}], ids=str)
def test_the_order_of_reuse_is_found_out(tiny: LoadedModel, policy: str, options: dict[str, Any]) -> None:
    result = trial(PellucidLaboratory(tiny, reuse_policy=policy, **options), [REUSE_ORDER])
    found = evidence(result, "reuse-order")
    assert (found["order"], found["explained_by"], found["said"]) == (policy, [policy], policy)
    assert set(found["parted"]) == {"free-first", "vllm-0.23", "vllm-0.24"} - {policy}


def test_an_order_that_several_policies_explain(tiny: LoadedModel) -> None:
    """A block of one token is always full, so none is returned free, and only that sets the policies apart."""
    (proof,) = trial(PellucidLaboratory(tiny, block_size=1, reuse_policy="vllm-0.23"), [REUSE_ORDER]).claims
    assert proof.verdict is Verdict.PROVED
    assert proof.evidence["order"] == "undecided"
    assert "vllm-0.23" in proof.evidence["explained_by"]
    assert "explain equally" in proof.reason


def test_an_order_that_no_known_policy_explains(plays: Plays) -> None:
    """The engine names a policy that is not known here, and gives blocks out in another order: only sets are proved."""
    run = faults.in_pools(plays.recordings["reuse"], lambda pool: replace(pool, reuse_policy="by moonlight"))
    run = faults.with_the_act(run, lambda act: isinstance(act, Take), lambda act: replace(act, blocks=act.blocks[::-1]))
    proof = REUSE_ORDER.prove({"reuse": run})
    assert proof.verdict is Verdict.PROVED
    assert (proof.evidence["order"], proof.evidence["explained_by"]) == ("unknown", [])
    assert "no known policy explains" in proof.reason


def test_the_miss_ledger_by_reason(plays: Plays) -> None:
    ledger = evidence(report(plays), "miss-ledger")
    assert ledger["asked"] == ledger["hit"] + sum(ledger["missed"].values())
    assert set(ledger["missed"]) == {
        *("never seen", "shorter than a block", "last-block rule", "other salt or adapter", "evicted"),
    }
    (resume,) = [row for row in ledger["lookups"] if row["kind"] == "resume"]
    assert (resume["request"], resume["hit"], resume["missed"]["evicted"]) == ("P2", 32, 32)


def test_every_kind_of_act_is_left_out_and_altered(plays: Plays) -> None:
    found = evidence(report(plays), "journal")
    assert sum(found["kinds"].values()) == found["acts"]
    assert {row["kind"] for row in found["probed"]} == set(found["kinds"])
    assert {"evict", "preempt", "share", "lookup"} <= set(found["kinds"])


def test_a_pool_of_a_scenario_replaces_that_of_the_options(tiny: LoadedModel) -> None:
    laboratory = PellucidLaboratory(tiny, kv_cache_tokens=1000, max_model_len=500)
    assert laboratory(num_gpu_blocks_override=13).about.max_model_len == 192
    assert laboratory().about.max_model_len == 500


@pytest.mark.parametrize(("policy", "table"), [("vllm-0.24", [*range(44, 22, -1), *range(67, 72)])])
def test_another_order_of_reuse_proves_the_same(tiny: LoadedModel, policy: str, table: list[int]) -> None:
    assert evidence(trial(PellucidLaboratory(tiny, reuse_policy=policy)), "holes")["table"] == table


def test_the_longest_run_is_measured() -> None:
    assert longest_run([]) == ()
    assert longest_run([9, 3, 4, 5, 8, 1]) == (3, 4, 5)
    assert longest_run([7, 8, 1, 2]) == (1, 2)


class Opaque:
    """An engine that shows its tables and nothing else, as an observed one may."""

    def __init__(self, inner: PellucidSubject) -> None:
        self._inner = inner

    @property
    def about(self) -> About:
        return self._inner.about

    def add_request(self, name: str, prompt: Sequence[int], max_tokens: int, salt: str | None = None) -> None:
        self._inner.add_request(name, prompt, max_tokens, salt)

    def abort_request(self, name: str) -> None:
        self._inner.abort_request(name)

    def move_block(self, block: int, to: int) -> bool:
        return self._inner.move_block(block, to)

    def step(self) -> Mapping[str, Output]:
        return self._inner.step()

    def has_unfinished_requests(self) -> bool:
        return self._inner.has_unfinished_requests()

    def snapshot(self) -> Snapshot:
        return self._inner.snapshot()

    def acts_since(self, number: int) -> Sequence[AnyAct] | None:
        return None

    def memory(self) -> PoolMemory | None:
        return None

    def audit(self) -> Sequence[Violation] | None:
        return None


def test_an_engine_that_moves_nothing_shows_nothing_about_placement(tiny: LoadedModel) -> None:
    ours = PellucidLaboratory(tiny)

    class Rigid(Opaque):
        def move_block(self, block: int, to: int) -> bool:
            return False

    def make(**settings: Any) -> Subject:
        return Rigid(ours(**settings))

    result = trial(make, [claim for claim in CLAIMS if claim.id == "placement"])
    (proof,) = result.claims
    assert proof.verdict is Verdict.NOT_OBSERVABLE
    assert "does not move live blocks" in proof.reason


def test_an_engine_whose_ids_cannot_be_shuffled_shows_nothing_about_placement(tiny: LoadedModel) -> None:
    ours = PellucidLaboratory(tiny)

    def make(**settings: Any) -> Subject:
        if settings.get("shuffle_blocks") is not None:
            raise NotArisen("physical ids cannot be shuffled here")
        return ours(**settings)

    result = trial(make, [claim for claim in CLAIMS if claim.id == "placement"])
    (proof,) = result.claims
    assert proof.verdict is Verdict.NOT_OBSERVABLE
    assert "cannot be shuffled here" in proof.reason


def test_an_engine_without_journal_and_memory_can_be_put_to_the_proof(tiny: LoadedModel) -> None:
    ours = PellucidLaboratory(tiny)

    def make(**settings: Any) -> Subject:
        return Opaque(ours(**settings))

    laboratory: Laboratory = make
    result = trial(laboratory)
    verdicts = {proof.id: proof.verdict for proof in result.claims}
    for claim in ("pool-fixed", "reuse-order", "preemption", "chunking", "batching", "planning-ahead"):
        assert verdicts.pop(claim) is Verdict.NOT_OBSERVABLE
    for claim in ("miss-ledger", "journal"):
        assert verdicts.pop(claim) is Verdict.NOT_OBSERVABLE
    assert set(verdicts.values()) == {Verdict.PROVED}
    assert evidence(result, "accounting")["not_checked"] == [
        "I4",
        "I5",
        "I6",
        "I7",
        "I8",
        "I10",
        "I11",
        "I13",
        "I14",
    ]
    assert evidence(result, "sharing")["live"]["computed_tokens"] is None
    assert result.pool.nbytes is None


def test_a_recording_can_be_kept_and_judged_later(plays: Plays) -> None:
    written = msgspec.json.encode(plays.recordings)
    kept = Plays()
    kept.recordings = msgspec.json.decode(written, type=dict[str, Recording])
    assert kept.recordings == plays.recordings
    assert report(kept) == report(plays)
