"""``pellucid vllm`` and ``pellucid doctor`` where there is no vLLM, and what the former sets where there is one."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from attach.environment import ROOT
from pellucid.attach import source
from pellucid.attach.vllm_command import observed


def pellucid(*words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    program = [sys.executable, "-m", "pellucid", *words]
    settings = {"PYTHONPATH": str(ROOT / "src"), "PATH": "", "HOME": "/", "COLUMNS": "80", **environment}
    return subprocess.run(program, capture_output=True, text=True, env=settings)


@pytest.mark.parametrize(
    ("plugins", "after"),
    [(None, None), ("pellucid", "pellucid"), ("a,pellucid", "a,pellucid"), ("a", "a,pellucid"), ("", "pellucid")],
)
def test_it_is_let_in_beside_the_plugins_that_were_named(plugins: str | None, after: str | None) -> None:
    given = {"HOME": "/root"} | ({} if plugins is None else {"VLLM_PLUGINS": plugins})
    assert observed(given) == {**given, "PELLUCID_OBSERVE": "1"} | ({} if after is None else {"VLLM_PLUGINS": after})


def test_no_vllm_is_one_sentence() -> None:
    done = pellucid("vllm", "serve", "some/model", "--port", "8000", "--help")
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr == (
        f"pellucid: there is no vLLM in {sys.prefix}; install Pellucid where vLLM is, and start it with that "
        "environment's own pellucid.\n"
    )


def test_a_doctor_without_a_vllm(tmp_path: Path) -> None:
    done = pellucid("doctor", "--model", "some/model", PELLUCID_RUNTIME_DIR=str(tmp_path))
    assert done.returncode == 1
    assert done.stderr == ""
    assert "vLLM: none here" in done.stdout
    assert all(len(line) <= 80 for line in done.stdout.splitlines())
    facts = json.loads(pellucid("doctor", "--json", PELLUCID_RUNTIME_DIR=str(tmp_path)).stdout)
    assert facts["observable"] is False
    assert facts["environment"]["engines"] == f"none answers in {tmp_path}/pellucid-{os.getuid()}"


def test_a_source_that_lacks_a_name_is_told(tmp_path: Path) -> None:
    core = tmp_path / "v1" / "core"
    core.mkdir(parents=True)
    (core / "block_pool.py").write_text(
        "class BlockPool:\n"
        "    def __init__(self, n: int) -> None:\n"
        "        self.blocks, self.num_gpu_blocks = [], n\n"
        "        self.null_block: object = None\n"
        "    def get_num_free_blocks(self): return 0\n"
        "    def free_blocks(self): print(self.free_block_queue)\n"
    )
    (core / "kv_cache_utils.py").write_text("class KVCacheBlock:\n    block_id: int\n    ref_cnt = 0\n  oh")
    found = {finding.what: finding for finding in source.read(tmp_path)}
    assert not any(finding.works for finding in found.values())
    assert found["block pool"].seen == "BlockPool has no free_block_queue"
    assert found["block"].seen.startswith("cannot be read: ")
    assert found["scheduler"].seen.startswith("cannot be read: ")
