"""The two founding programs, unmodified, as a user runs them: in a process of their own, without their model."""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

FOUNDING = Path(__file__).parent.parent / "data" / "founding"
AS_WRITTEN = {
    "verify1_allocation_and_sharing.py": "16e874a92f616b7275d611eb15a65b73ad2f63bf459503e5c8da826bc2f5c0c9",
    "verify2_holes.py": "7c19af84f879599a2bb62679317b07b4d474530759ef3eeed5a4d0a3a6f2af4a",
}

pytestmark = pytest.mark.model


def run(script: str, nowhere: Path) -> subprocess.CompletedProcess[str]:
    """``pellucid run`` where the hub's model is neither cached nor to be had."""
    surroundings = {**os.environ, "HF_HUB_OFFLINE": "1", "HF_HOME": str(nowhere), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "pellucid", "run", str(FOUNDING / script)]
    return subprocess.run(command, env=surroundings, capture_output=True, text=True, timeout=120)


@pytest.fixture(scope="module")
def verify1(tmp_path_factory: pytest.TempPathFactory) -> subprocess.CompletedProcess[str]:
    return run("verify1_allocation_and_sharing.py", tmp_path_factory.mktemp("nowhere"))


def lists(text: str, label: str) -> list[int]:
    found = re.search(re.escape(label) + r"[^\[]*\[([\d, ]*)\]", text)
    assert found, label
    return [int(number) for number in found[1].split(",")]


def test_they_are_byte_for_byte_as_they_were_written() -> None:
    found = {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in FOUNDING.glob("*.py")}
    assert found == AS_WRITTEN


def test_verify1_blocks_as_used_and_a_shared_prefix(verify1: subprocess.CompletedProcess[str]) -> None:
    assert verify1.returncode == 0, verify1.stderr
    rows = re.findall(r"^ +(\d+) +(\d+) +(\d+) +(\d+)칸  32블록 고정$", verify1.stdout, re.MULTILINE)
    assert rows == [("6", "1", "1", "10"), ("56", "4", "4", "8"), ("337", "22", "22", "15")]
    assert "공유 prefix : 61 토큰" in verify1.stdout
    first, second = lists(verify1.stdout, "A 블록"), lists(verify1.stdout, "B 블록")
    assert lists(verify1.stdout, "앞에서부터 일치") == first[:3] == second[:3]
    assert "(3개 = 48 토큰 재계산 생략)" in verify1.stdout
    assert not set(first[3:]) & set(second[3:])


def test_verify1_is_told_that_gpu_bytes_are_no_evidence_and_what_is(verify1: subprocess.CompletedProcess[str]) -> None:
    assert "검증 전 0.0 MiB -> 검증 후 0.0 MiB" in verify1.stdout
    assert re.search(r"torch\.cuda\.memory_allocated\(\) .* no evidence", verify1.stderr)
    assert re.search(
        r"KV pool: [\d,]+ bytes .* at 0x[0-9a-f]+ before the first step, and the same after", verify1.stderr
    )
    printed = re.search(r"num_gpu_blocks : ([\d,]+) 개", verify1.stdout)
    assert printed is not None
    blocks = int(printed[1].replace(",", ""))
    assert f"{blocks:,} blocks are {blocks - 1:,} usable" in verify1.stderr
    assert "smollm2-135m takes the place of the script's HuggingFaceTB/SmolLM-135M" in verify1.stderr
    assert "pellucid" not in verify1.stdout


def test_verify2_picks_up_the_hole(tmp_path: Path) -> None:
    ran = run("verify2_holes.py", tmp_path)
    assert ran.returncode == 0, ran.stderr
    assert [lists(ran.stdout, f"R{i} :") for i in range(3)] == [
        list(range(1, 23)),
        list(range(23, 45)),
        list(range(45, 67)),
    ]
    assert lists(ran.stdout, "NEW 가 받은 블록 (27개)") == [*range(67, 80), *range(44, 30, -1)]
    assert lists(ran.stdout, "구멍에서 재사용 : 14개") == list(range(31, 45))
    assert lists(ran.stdout, "미사용분에서    : 13개") == list(range(67, 80))
    assert "연속인가? 아니오" in ran.stdout
    assert "80 blocks are 79 usable: block 0 is reserved." in ran.stderr
