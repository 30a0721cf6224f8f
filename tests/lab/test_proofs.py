"""Every claim, proved on `tiny` under many settings, with the numbers it should find."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import pytest

from pellucid.kv.acts import AnyAct
from pellucid.kv.invariants import Violation
from pellucid.kv.memory import PoolMemory
from pellucid.kv.snapshot import Snapshot
from pellucid.lab import CLAIMS, Laboratory, Subject, Verdict
from pellucid.lab.claims.holes import longest_run
from pellucid.lab.pellucid_subject import PellucidLaboratory, PellucidSubject
from pellucid.lab.recording import Recording
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
    {"async_scheduling": True},
    {"async_scheduling": True, "max_num_batched_tokens": 100, "block_size": 8},
    {"reuse_policy": "vllm-0.23"},
    {"reuse_policy": "vllm-0.24"},
    {"kv_cache_tokens": 600},
]


@pytest.mark.parametrize("options", SETTINGS, ids=str)
def test_every_claim_is_proved(tiny: LoadedModel, options: dict[str, Any]) -> None:
    result = trial(PellucidLaboratory(tiny, **options))
    assert [
        (proof.id, proof.verdict, proof.reason) for proof in result.claims if proof.verdict is not Verdict.PROVED
    ] == []
    assert result.exit_status == 0
    assert result.verdicts[Verdict.PROVED] == len(CLAIMS)


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
    holes = evidence(result, "holes")
    assert holes["hole"] == list(range(23, 45))
    assert holes["free"] == [*range(23, 45), *range(67, 80)]
    assert holes["longest_run"] == list(range(23, 45))
    assert holes["table"] == [*range(67, 80), *range(44, 30, -1)]
    assert evidence(result, "pool-fixed")["engines"][0]["blocks"] == 80


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


def test_an_engine_without_journal_and_memory_can_be_put_to_the_proof(tiny: LoadedModel) -> None:
    ours = PellucidLaboratory(tiny)

    def make(**settings: Any) -> Subject:
        return Opaque(ours(**settings))

    laboratory: Laboratory = make
    result = trial(laboratory)
    verdicts = {proof.id: proof.verdict for proof in result.claims}
    assert verdicts.pop("pool-fixed") is Verdict.NOT_OBSERVABLE
    assert set(verdicts.values()) == {Verdict.PROVED}
    assert evidence(result, "accounting")["not_checked"] == [
        "I4",
        "I5",
        "I6",
        "I7",
        "I8",
        "I10",
        "I11",
        "I12",
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
