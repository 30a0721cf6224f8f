"""The benchmarks run, and their last line is one JSON object with what is documented. No time is asserted."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file

BENCHMARKS = Path(__file__).resolve().parents[1] / "benchmarks"
PARTS = ("schedule", "launch", "collect", "commit", "note", "glue")


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
