"""The same three requests, scheduled in four ways."""

from __future__ import annotations

from typing import NamedTuple

from pellucid.lab.recorder import Recorder, tokens
from pellucid.lab.scenario import PLAIN, Scenario
from pellucid.lang import say

OUTPUT = 6
BUDGET = 8
"""Tokens a step where prompts are to be computed in chunks."""


class Asked(NamedTuple):
    """A request and the length of its prompt."""

    name: str
    prompt: int


def asked(recorder: Recorder) -> tuple[Asked, ...]:
    """Prompts of 40, 23 and 9 tokens, shorter where the pool or a request must be small."""
    pool, longest = recorder.snapshot.pool, recorder.about.max_model_len
    room = pool.usable * pool.block_size - 3 * (OUTPUT + pool.block_size)
    unit = max(1, min(8, (longest - OUTPUT) // 5, room // 9))
    return Asked("five", 5 * unit), Asked("three", 3 * unit - 1), Asked("one", unit + 1)


def _add(recorder: Recorder, request: Asked) -> None:
    recorder.add(request.name, tokens(recorder.about.vocab_size, request.name, request.prompt), OUTPUT)


def play_together(recorder: Recorder) -> None:
    """All at once."""
    requests = asked(recorder)
    for request in requests:
        _add(recorder, request)
    recorder.until_ended(*(request.name for request in requests))
    recorder.drain()


def play_one_by_one(recorder: Recorder) -> None:
    """Each when the one before has ended."""
    for request in asked(recorder):
        _add(recorder, request)
        recorder.until_ended(request.name)
    recorder.drain()


ONE_BY_ONE = Scenario("one by one", say("three requests, one by one"), PLAIN, play_one_by_one)
IN_STEP = Scenario(
    "in step", say("the same together, step by step"), {**PLAIN, "async_scheduling": False}, play_together
)
AHEAD = Scenario("ahead", say("the same, planned a step ahead"), {**PLAIN, "async_scheduling": True}, play_together)
CHUNKED = Scenario("chunked", say("the same, in chunks"), {**PLAIN, "max_num_batched_tokens": BUDGET}, play_together)
