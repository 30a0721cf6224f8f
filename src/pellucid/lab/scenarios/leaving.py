"""Requests that leave while a step is under way, and others that get their blocks, in a small pool."""

from __future__ import annotations

from typing import Any, NamedTuple

from pellucid.lab.recorder import Recorder, tokens
from pellucid.lab.scenario import CACHING, NotArisen, Scenario
from pellucid.lab.scenarios.pressure import SMALL, SMALL_POOL
from pellucid.lang import say

WRITER, READER = "writer", "reader"
WALKER, CLIMBER = "walker", "climber"
OUTPUT = 4
PATIENCE = 200


class LeavingLayout(NamedTuple):
    """Prompts of ``blocks`` blocks of ``size`` tokens, or a little more or less."""

    size: int
    blocks: int

    @classmethod
    def of(cls, recorder: Recorder) -> LeavingLayout:
        """Of 3 blocks, or fewer where a request must be short. Raises `NotArisen` if it must be shorter than one."""
        size = recorder.snapshot.pool.block_size
        longest = min(recorder.about.max_model_len, SMALL * size)
        blocks = min(3, (longest - OUTPUT) // size)
        if blocks < 1:
            raise NotArisen(
                say(
                    "no request of at most {longest} tokens fills a block of {size} and goes on for {output} tokens",
                    longest=longest,
                    size=size,
                    output=OUTPUT,
                )
            )
        return cls(size, blocks)

    @property
    def one_less(self) -> int:
        """A prompt's length so that the last block is not begun: its first output token begins it."""
        return max(1, (self.blocks - 1) * self.size)

    @property
    def begun(self) -> int:
        """A prompt's length so that the last block holds one token."""
        return (self.blocks - 1) * self.size + 1

    @property
    def almost_full(self) -> int:
        """A prompt's length so that the last block lacks one token, and is soon not enough."""
        return max(1, self.blocks * self.size - 1)


def play_leaving(recorder: Recorder) -> None:
    """One leaves when its prompt is under way, which another shares; then two at a token of theirs, in the middle of a
    block and at its beginning. Others fill the pool and grow, so that somebody has to give way.
    """
    layout, vocab = LeavingLayout.of(recorder), recorder.about.vocab_size
    shared = tokens(vocab, WRITER, layout.begun)
    recorder.add(WRITER, shared, 2 * OUTPUT)
    recorder.add(READER, shared, 2 * OUTPUT)
    recorder.until(lambda: recorder.placed(WRITER) and recorder.placed(READER), PATIENCE)
    _leave(recorder, WRITER)
    recorder.add(WALKER, tokens(vocab, WALKER, layout.begun), 2 * OUTPUT)
    recorder.add(CLIMBER, tokens(vocab, CLIMBER, layout.one_less), 2 * OUTPUT)
    recorder.until(lambda: recorder.placed(WALKER) and recorder.placed(CLIMBER), PATIENCE)
    recorder.step()
    _leave(recorder, WALKER)
    _leave(recorder, CLIMBER)
    names = [f"next {number}" for number in range(1, 1 + (SMALL - layout.blocks) // layout.blocks)]
    for name in names:
        recorder.add(name, tokens(vocab, name, layout.almost_full), OUTPUT)
    recorder.until_ended(READER, *names)
    recorder.drain()


def _leave(recorder: Recorder, name: str) -> None:
    if not recorder.ended(name):
        recorder.abort(name)


SMALL_AHEAD: dict[str, Any] = {**CACHING, **SMALL_POOL, "async_scheduling": True}
SMALL_IN_STEP: dict[str, Any] = {**CACHING, **SMALL_POOL, "async_scheduling": False}

LEAVING = Scenario("leaving", say("requests that leave while a step is under way"), SMALL_AHEAD, play_leaving)
LEAVING_IN_STEP = Scenario("leaving in step", say("the same, between two steps"), SMALL_IN_STEP, play_leaving)
