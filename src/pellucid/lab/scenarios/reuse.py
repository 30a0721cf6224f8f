"""Blocks returned and taken again, so that the known orders of re-use part."""

from __future__ import annotations

from pellucid.lab.recorder import Recorder, tokens
from pellucid.lab.scenario import CACHING, Scenario
from pellucid.lab.scenarios.pressure import SMALL, SMALL_POOL
from pellucid.lang import say

OUTPUT = 1
"""It is sampled and never computed, so the last block of a table stays as its prompt left it, half full."""


def play_reuse(recorder: Recorder) -> None:
    """Two requests leave free and cached blocks behind; one comes again, beside others that fill the pool.

    With tables of 4 blocks the first leaves 4 free and 3-1 cached, the second 8 free and 7-5 cached. The second
    comes again and finds 5-7, so that one queue now has 3-1 before 8, and a stack of free blocks 8 before 4.
    """
    size, longest = recorder.snapshot.pool.block_size, recorder.about.max_model_len
    blocks = max(1, min(4, longest // size))
    length = max(1, min((blocks - 1) * size + -(-size // 2), longest - OUTPUT))
    one, two, *others = (tokens(recorder.about.vocab_size, f"reuse {i}", length) for i in range(SMALL // blocks + 1))
    rounds = ({"one": one, "two": two}, {"two again": two, **{f"other {i}": t for i, t in enumerate(others, 1)}})
    for prompts in rounds:
        for name, prompt in prompts.items():
            recorder.add(name, prompt, OUTPUT)
        recorder.until_ended(*prompts)
        recorder.until(lambda: not recorder.snapshot.pool.fenced, limit=2)
    recorder.drain()


REUSE = Scenario("reuse", say("blocks returned and taken again"), {**CACHING, **SMALL_POOL}, play_reuse)
