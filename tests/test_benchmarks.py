"""The benchmarks run, and their last line is one JSON object with what is documented. No time is asserted."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from pellucid.model import load

BENCHMARKS = Path(__file__).resolve().parents[1] / "benchmarks"
PARTS = ("schedule", "launch", "collect", "commit", "note", "glue")


@pytest.fixture
def programs(monkeypatch: pytest.MonkeyPatch) -> None:
    """The benchmarks' own modules can be imported."""
    monkeypatch.syspath_prepend(str(BENCHMARKS))


def last_line(program: str, *arguments: str, **environment: str) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, str(BENCHMARKS / program), *arguments],
        env=os.environ | {"PELLUCID_VLLM_PYTHON": "", "PELLUCID_LLAMA_PYTHON": ""} | environment,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def test_pellucid_alone_in_the_cpu_benchmark() -> None:
    report = last_line(
        *("cpu.py", "--model", "tiny", "--engines", "pellucid", "--rounds", "1", "--probe-mib", "32"),
        *("--requests", "3", "--prompt", "8", "--output", "4", "--threads", "1"),
    )
    assert {
        "benchmark",
        "date",
        "cpu",
        "cores",
        "load",
        "loads",
        "omp_wait_policy",
        "kernels",
        "versions",
    } <= report.keys()
    figures = {"throughput", "ttft", "tpot", "cold", "warm", "peak", "cold_read"}
    assert report["figures"].keys() == {f"pellucid_{name}" for name in figures} | {"bandwidth", "floor_tpot"}
    assert all(len(figure["runs"]) == 1 for name, figure in report["figures"].items() if name != "floor_tpot")
    assert all(figure["value"] > 0 for name, figure in report["figures"].items() if name != "pellucid_cold_read")
    assert report["threads"] == {"pellucid": 1}
    assert report["agreement"] == {"pellucid": 1.0}
    assert (report["ratios"], report["failed"]) == ({}, {})


def test_an_engine_that_cannot_run_is_named() -> None:
    done = subprocess.run(
        [sys.executable, str(BENCHMARKS / "cpu.py"), "--model", "tiny", "--engines", "pellucid,llama.cpp"],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 1
    assert done.stderr.startswith("llama.cpp cannot run here;")


def test_the_journal_benchmark() -> None:
    report = last_line(
        *("journal.py", "--model", "tiny", "--batches", "2", "--requests", "3", "--prompt", "40", "--output", "20")
    )
    figures = report["figures"]
    assert figures["pairs"]["value"] == 16
    low, middle, high = (figures[f"journal_cost{end}"]["value"] for end in ("_low", "", "_high"))
    assert low <= middle <= high
    assert figures["journal_share"]["value"] > 0
    assert figures["journal_share"]["target"] == figures["journal_cost"]["target"] == 1.0


def test_the_host_benchmark() -> None:
    figures = last_line("host.py", "--requests", "1", "3", "--steps", "20")["figures"]
    for requests in ("1", "3"):
        for way in ("on", "off"):
            parts = [figures[f"{requests}_journal_{way}_{part}"]["value"] for part in PARTS]
            whole = figures[f"{requests}_journal_{way}_step"]["value"]
            assert 0 < max(parts) < whole
        assert figures[f"{requests}_full_journal_mean"]["value"] > 0
    assert figures["1_journal_on_step"]["target"] == 80


def test_others_get_the_very_weights(tmp_path: Path) -> None:
    from transformers import AutoModelForCausalLM

    from pellucid.model import find

    facts = last_line("model_folder.py", "tiny", PELLUCID_CACHE=str(tmp_path))
    stored, weights = load_file(Path(facts["folder"]) / "model.safetensors"), find("tiny").weights()
    assert stored.keys() == weights.shapes.keys()
    for name, tensor in stored.items():
        ours = torch.empty(weights.shapes[name], dtype=torch.bfloat16)
        weights.copy_to(name, ours)
        assert torch.equal(tensor, ours), name
    AutoModelForCausalLM.from_pretrained(facts["folder"])
    assert facts["weight_bytes"] == sum(tensor.nbytes for tensor in stored.values())
    again = last_line("model_folder.py", "tiny", PELLUCID_CACHE=str(tmp_path))
    assert again["folder"] == facts["folder"]
    assert len(list(Path(facts["folder"]).parent.iterdir())) == 1


SMALL = ("--nseq", "3", "--inlen", "4", "8", "--outlen", "2", "4", "--out", "8", "--batches", "1", "3")
SMALLER = ("--max-model-len", "1024", "--context", "64", "--copy-mib", "8", "--journal-batches", "2")
ON_A_CPU = ("--option", "device=cpu", "--option", "num_gpu_blocks_override=2000", "--journal-out", "20")


def test_the_gpu_benchmark_on_a_cpu() -> None:
    report = last_line("gpu.py", "tiny", *SMALL, *SMALLER, *ON_A_CPU)
    words = [word for word, _ in report["lines"]]
    assert words == ["start", *["throughput"] * 2, *["decode"] * 2, *["steps"] * 2, *["kernels"] * 2]
    facts = dict(report["lines"])
    assert (facts["throughput"]["nin"], facts["decode"]["bs"], facts["steps"]["ctx"]) == (16, 3, 64)
    assert facts["kernels"]["us"]["inputs"] > 0
    assert {"throughput", "decode_1", "decode_3", "step_3_median", "step_3_spread", "step_3_share"} <= report[
        "figures"
    ].keys()
    assert {"first_token", "copy_bandwidth", "journal_cost"} <= report["figures"].keys()
    assert all(figure["value"] > 0 for name, figure in report["figures"].items() if not name.startswith("journal"))
    start = facts["start"]
    assert 0 < start["imported"] <= start["made"] <= start["first_token"]


def test_the_long_work_leaves_out_what_does_not_fit() -> None:
    report = last_line("gpu.py", "tiny", "--long", "1400", *ON_A_CPU)
    assert [(word, facts.get("n")) for word, facts in report["lines"]] == [
        ("start", None),
        ("ttft", 128),
        ("ttft", 1024),
    ]


def test_the_work_is_that_of_the_figures_to_beat(programs: None) -> None:
    import gpu_work

    draw = gpu_work.Draw(0, 49_152)
    draw.work(8, (64, 64), (16, 16), 0.6)
    for tokens_in, tokens_out in ((144_697, 150_593), (144_852, 137_858)):
        work = draw.work(256, (100, 1024), (100, 1024), 0.6)
        assert (work.tokens_in, sum(work.limits)) == (tokens_in, tokens_out)
        assert 10 <= min(map(min, work.prompts)) <= max(map(max, work.prompts)) <= 40_000


def test_texts_of_a_card_that_is_the_cpu() -> None:
    report = last_line("card_texts.py", "--model", "tiny", "--device", "cpu", "--prompts", "4", "--tokens", "6")
    figures = {name: figure["value"] for name, figure in report["figures"].items()}
    assert figures["greedy_positions"] == figures["drawn_positions"] == 24
    assert (figures["greedy_corrupt"], figures["drawn_corrupt"]) == (0, 0)
    assert figures["greedy_yardstick"] > 0
    assert len(report["differences"]) == figures["greedy_ties"] + figures["drawn_ties"]


@pytest.mark.usefixtures("programs")
def test_a_card_that_computes_something_else_is_corrupt() -> None:
    """Another seed's weights; and the right ones, except that one number of one layer comes out twice as large."""
    from card_texts import Comparison, Work, figures_of

    work = Work([[7, 8, 9], [70, 80, 90]], 0.0, 5)
    cpu, typed, other, off = (
        load("tiny", dtype=dtype, kernels="torch", seed=seed)
        for dtype, seed in (("float32", 0), ("bfloat16", 0), ("bfloat16", 1), ("bfloat16", 0))
    )
    off.model._layers[0].down.weight[0] *= 2
    for card, corrupt in ((typed, False), (other, True), (off, True)):
        comparison = Comparison("greedy", work, cpu, typed, card)
        figures = {figure.name: figure.value for figure in figures_of(comparison, comparison.differences())}
        assert (figures["greedy_corrupt"] > 0) == corrupt


def test_ratios_of_two_logs(tmp_path: Path) -> None:
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    ours.write_text('decode {"bs": 8, "ms_per_step": 1.5}\nthroughput {"out_tok_s": 40}\nttft {"n": 5, "ms": 1}\n')
    twice = 'throughput {"out_tok_s": 10}\nthroughput {"out_tok_s": 30}'
    theirs.write_text(f'startup_s 3\nnoise\n{twice}\ndecode {{"bs": 8, "ms_per_step": 3}}\n')
    report = last_line("gpu_ratios.py", str(ours), str(theirs))
    assert report["ratios"] == {"decode bs 8": 0.5, "throughput": 2.0}


@pytest.mark.parametrize(
    ("shape", "weights"),
    [("smollm2-135m", 134_515_008), ("qwen3-0.6b", 596_049_920), ("llama-8b", 8_030_261_248)],
)
def test_shapes_are_those_of_the_models(shape: str, weights: int) -> None:
    from pellucid.model import find
    from pellucid.model.llama import weight_bytes

    checkpoint = find(str(BENCHMARKS / "shapes" / shape))
    assert weight_bytes(checkpoint.config, torch.bfloat16) == 2 * weights
    assert checkpoint.tokenizer() is None


@pytest.mark.parametrize(
    ("kernel", "group"),
    [
        ("decode_kernel", "attention"),
        ("plan_kernel", "attention"),
        ("rotated_product_kernel", "products"),
        ("scores_kernel", "products"),
        ("nvjet_tst_128x64_64x12_v_bz_coopB_TNT", "products"),
        ("gate_kernel", "norms, rope and gates"),
        ("inputs_kernel", "inputs"),
        ("receive_kernel", "inputs"),
        ("Memcpy DtoH (Device -> Pinned)", "copies"),
        ("something_else", "other"),
    ],
)
def test_kernels_have_groups(programs: None, kernel: str, group: str) -> None:
    from gpu_kernels import group as group_of

    assert group_of(kernel) == group
