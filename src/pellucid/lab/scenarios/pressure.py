"""More requests than a small pool holds, and the same ones with room."""

from __future__ import annotations

from typing import Any, NamedTuple

from pellucid.lab.recorder import Recorder, tokens
from pellucid.lab.scenario import CACHING, PLAIN, NotArisen, Scenario
from pellucid.lang import say

SMALL = 12
"""Usable blocks of a pool that a few short requests fill, whatever the pool that is being put to the proof."""

SMALL_POOL: dict[str, Any] = {"num_gpu_blocks_override": SMALL + 1}


class PressureLayout(NamedTuple):
    """``requests`` prompts of ``prompt`` tokens fill the small pool; each wants one block more to get ``output``.

    One more waits.
    """

    requests: int
    prompt: int
    output: int

    @classmethod
    def of(cls, recorder: Recorder) -> PressureLayout:
        """Three prompts of 4 blocks, or more and shorter ones. Raises `NotArisen` if a request must be too short."""
        size, about = recorder.snapshot.pool.block_size, recorder.about
        longest = min(about.max_model_len, SMALL * size)
        steps = -(-SMALL * size // about.max_num_batched_tokens)  # until the last prompt is in
        output = 6 + steps
        room = min(1 + steps, size - 1)  # in the last block of a prompt, so that the first does not grow before
        blocks = min(4, (longest - output + room) // size)
        if blocks < 1:
            raise NotArisen(
                say(
                    "no request of at most {longest} tokens fills a block of {size} and goes on for {output} tokens",
                    longest=longest,
                    size=size,
                    output=output,
                )
            )
        return cls(SMALL // blocks, blocks * size - room, output)

    def add(self, recorder: Recorder, number: int) -> str:
        """The request ``number``; returns its name."""
        name = f"P{number}"
        recorder.add(name, tokens(recorder.about.vocab_size, name, self.prompt), self.output)
        return name


def play_pressure(recorder: Recorder) -> None:
    """All at once: the pool is full when all but one are in, and nobody can go on without somebody's blocks."""
    layout = PressureLayout.of(recorder)
    names = [layout.add(recorder, number) for number in range(layout.requests + 1)]
    recorder.until_ended(*names)
    recorder.drain()


def play_with_room(recorder: Recorder) -> None:
    """The same requests, each alone in the pool."""
    layout = PressureLayout.of(recorder)
    for number in range(layout.requests + 1):
        recorder.until_ended(layout.add(recorder, number))
    recorder.drain()


PRESSURE = Scenario("pressure", say("a pool under pressure"), {**CACHING, **SMALL_POOL}, play_pressure)
ROOMY = Scenario("roomy", say("the same requests, each alone in the pool"), {**PLAIN, **SMALL_POOL}, play_with_room)
