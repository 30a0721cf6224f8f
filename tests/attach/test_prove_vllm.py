"""The claims on a real vLLM, from the command line, and on vLLMs with a fault put into them."""

from __future__ import annotations

import json
import os
import subprocess
from typing import Any

import pytest

from attach.conftest import PROBES
from attach.environment import SETTINGS, WHOLE, run_in, vllm_python

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]

NOT_OBSERVABLE = {
    "placement": "nobody can shuffle them",
    "planning-ahead": "asynchronous scheduling off on this device",
}
"""What a vLLM on a CPU cannot be made to do, and the words of the reason."""

SMALL: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "torch_dtype": "float32",
    "vocab_size": 1024,
    "hidden_size": 64,
    "intermediate_size": 64,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "max_position_embeddings": 4096,
    "tie_word_embeddings": True,
    "bos_token_id": 1,
    "eos_token_id": 2,
}


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The shape of a model that starts quickly; its weights are made up by vLLM."""
    folder = tmp_path_factory.mktemp("small")
    (folder / "config.json").write_text(json.dumps(SMALL))
    return str(folder)


def pellucid(*words: str) -> subprocess.CompletedProcess[str]:
    """The command line in the environment of the vLLM."""
    command = [vllm_python(), "-m", "pellucid", *words]
    return subprocess.run(command, env=os.environ | SETTINGS, capture_output=True, text=True, cwd="/")


def test_every_claim_is_proved_or_said_to_be_out_of_sight(smollm2_folder: str) -> None:
    done = pellucid("prove", "--engine", "vllm", "--model", smollm2_folder, "--max-num-seqs", "32", "--json")
    assert done.returncode == 0, done.stderr[-4000:] + done.stdout[-4000:]
    report = json.loads(done.stdout)
    assert (report["about"]["dtype"], report["about"]["exact"], report["about"]["max_num_seqs"]) == (
        "float32",
        True,
        32,
    )
    verdicts = {claim["id"]: claim["verdict"] for claim in report["claims"]}
    expected = {name: "not observable" if name in NOT_OBSERVABLE else "proved" for name in verdicts}
    assert verdicts == expected
    reasons = {claim["id"]: claim["reason"] for claim in report["claims"]}
    assert all(words in reasons[name] for name, words in NOT_OBSERVABLE.items()), reasons
    order = next(claim["evidence"] for claim in report["claims"] if claim["id"] == "reuse-order")
    assert order["order"] == order["said"] == "vllm-0.24"


def test_what_is_set_is_said_and_what_was_set_stays(small: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(SETTINGS, "VLLM_NO_USAGE_STATS", "0")
    words = ("--load-format", "dummy", "--block-size", "64", "--claim", "taken-as-used", "--json")
    done = pellucid("prove", "--engine", "vllm", "--model", small, *words)
    assert done.returncode == 0, done.stderr[-4000:]
    assert json.loads(done.stdout)["pool"]["block_size"] == 64
    assert "pellucid: num_gpu_blocks_override=20: a pool so small" in done.stderr
    assert "pellucid: VLLM_NO_USAGE_STATS" not in done.stderr
    assert "pellucid: block_size" not in done.stderr


@pytest.mark.parametrize(
    ("words", "answer"),
    [
        (("--no-such-flag", "3"), "vLLM refuses its options: unrecognized arguments: --no-such-flag 3"),
        (("--dtype", "float99"), "vLLM refuses its options: argument --dtype: invalid choice: 'float99'"),
        (("--block-size", "16"), "vLLM does not start: No common block size for 16"),
        (("--reuse-policy", "free-first"), "chooses among Pellucid's own"),
    ],
)
def test_refusals_are_one_sentence(small: str, words: tuple[str, ...], answer: str) -> None:
    done = pellucid("prove", "--engine", "vllm", "--model", small, "--load-format", "dummy", *words)
    assert done.returncode == 2
    assert answer in done.stderr.splitlines()[-1]


def test_a_short_soak_finds_nothing_and_something_happens(small: str) -> None:
    words = ("--load-format", "dummy", "--rounds", "6", "--minutes", "20", "--json")
    done = pellucid("soak", "--engine", "vllm", "--model", small, *words)
    assert done.returncode == 0, done.stderr[-4000:] + done.stdout[-4000:]
    tally = json.loads(done.stdout)["tally"]
    assert tally["rounds"] == 6
    for name in ("requests", "aborts", "hit_tokens", "compared", "audits"):
        assert tally[name] > 0, tally


@pytest.fixture(scope="module")
def judged(small: str) -> dict[str, dict[str, tuple[str, str]]]:
    return run_in(WHOLE, PROBES / "faulty.py", small)


def test_without_a_fault_nothing_is_refuted(judged: dict[str, dict[str, tuple[str, str]]]) -> None:
    assert {verdict for verdict, _ in judged["sound"].values()} == {"proved"}


@pytest.mark.parametrize(
    ("fault", "claim"),
    [
        ("loses_a_block", "accounting"),
        ("never_frees", "accounting"),
        ("gives_one_block_twice", "accounting"),
        ("counts_an_owner_too_few", "accounting"),
        ("forgets_salts", "accounting"),
        ("forgets_salts", "isolation"),
    ],
)
def test_a_fault_in_a_live_vllm_is_refuted(
    judged: dict[str, dict[str, tuple[str, str]]], fault: str, claim: str
) -> None:
    verdict, reason = judged[fault][claim]
    assert verdict == "refuted", reason
