"""What is said on stderr at the end: what the script's numbers are worth, by what it touched."""

from __future__ import annotations

import re
from typing import Any

from pellucid.compat.notes import Notes, whereabouts
from pellucid.compat.record import EngineRecord
from pellucid.kv.memory import PoolMemory

LLM = """
from vllm import LLM, SamplingParams
llm = LLM("tiny", num_gpu_blocks_override=80, max_model_len=128)
"""


def test_without_an_engine_there_is_nothing_to_say(play: Any) -> None:
    assert play("print('hello')") == (0, "hello\n", "")


def test_the_pool_is_watched_at_every_step_of_generate_too(play: Any) -> None:
    ran = play(LLM + "llm.generate('x', SamplingParams(max_tokens=5, temperature=0, ignore_eos=True))")
    assert "  80 blocks are 79 usable: block 0 is reserved.\n" in ran.err
    assert re.search(
        r"  KV pool: 655,360 bytes \(0\.6 MiB\) at 0x[0-9a-f]+ before the first step, and the same after each "
        r"of 6 steps\.\n",  # asynchronous: one step more than tokens
        ran.err,
    )


def test_without_a_step_nothing_is_claimed(play: Any) -> None:
    assert re.search(r"KV pool: 655,360 bytes .*; no step was made\.\n", play(LLM).err)


def test_only_what_was_touched_is_mentioned(play: Any) -> None:
    quiet = play(LLM + "import torch").err
    assert "torch.cuda" not in quiet
    assert "random tail" not in quiet
    asked = play(LLM + "import torch; print(torch.cuda.memory_allocated(), torch.cuda.max_memory_allocated())")
    assert asked.out == "0 0\n"
    assert "torch.cuda.memory_allocated() and torch.cuda.max_memory_allocated() said is no evidence" in asked.err
    path = "llm.llm_engine.engine_core.engine_core.scheduler.kv_cache_manager"
    assert "random tail" in play(LLM + f"len({path}.coordinator.single_type_managers[0].req_to_blocks)").err


def test_they_are_said_when_the_script_fails_too(play: Any) -> None:
    ran = play(LLM + "1 / 0")
    assert ran.status == 1
    assert ran.err.index("ZeroDivisionError") < ran.err.index("80 blocks are 79 usable")


def test_a_pool_that_moves_is_reported_with_the_step() -> None:
    record = EngineRecord("tiny", "tiny", 80, PoolMemory(4096, 100))
    for address in (4096, 8192, 4096):
        record.step(PoolMemory(address, 100))
    assert whereabouts(record).endswith("100 bytes at 0x1000 after the last: CHANGED in step 2 of 3.")


def test_a_remark_is_one_line_on_stderr(capsys: Any) -> None:
    Notes().say("a remark")
    assert capsys.readouterr() == ("", "pellucid: a remark\n")
