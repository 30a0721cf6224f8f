"""Requests side by side, a hole between them, and a request that is larger than the hole."""

from __future__ import annotations

from typing import NamedTuple

from pellucid.lab.recorder import Recorder, tokens
from pellucid.lab.scenario import CACHING, PLAIN, NotArisen, Scenario
from pellucid.lang import say

LEAVES, ARRIVES = "R1", "NEW"
NEW_TOKENS = 4


class HolesLayout(NamedTuple):
    """Sizes in blocks: ``sides`` of the requests side by side (the second one leaves), ``new`` of the late one.

    ``prefill`` is how many steps it takes at most to compute prompts that fill the pool.
    """

    sides: tuple[int, ...]
    new: int
    prefill: int

    @property
    def patience(self) -> int:
        """The most steps to wait for anything, and what the survivors can go on for."""
        return _patience(self.prefill)

    @classmethod
    def of(cls, recorder: Recorder) -> HolesLayout:
        """Three equal requests and a smaller tail, 22 + 22 + 22 + 13 of 79; more of them if each must be short.

        The late one needs more than the hole or the tail alone, and less than both leave when the
        survivors have grown. Raises `NotArisen` if the pool or its longest request is too small for that.
        """
        pool, about = recorder.snapshot.pool, recorder.about
        usable, size = pool.usable, pool.block_size
        prefill = -(-usable * size // about.max_num_batched_tokens)
        longest = (about.max_model_len - _patience(prefill) - _filling(size)) // size + 1
        grows, late_grows = _growth(size, 2 + 4 * prefill), _growth(size, NEW_TOKENS - 1)
        leaver_grows = _growth(size, 2 * prefill - 1)
        side = min(2 * (usable - 2 * grows - late_grows) // 7, longest - 1 - leaver_grows)
        if side < 1:
            raise _too_small(recorder)
        sides = [side] * 3
        while True:
            tail = usable - sum(sides)
            too_few = max(side + leaver_grows, tail)
            most = min(side + tail - (len(sides) - 1) * grows - late_grows, longest)
            if too_few < most:
                break
            if tail <= side:
                raise _too_small(recorder)
            sides.append(min(side, tail - side * 3 // 5))
        if len(sides) >= about.max_num_seqs:
            raise NotArisen(
                say(
                    "{n} requests side by side and one more are needed; max_num_seqs is {most}",
                    n=len(sides),
                    most=about.max_num_seqs,
                )
            )
        return cls(tuple(sides), too_few + max(1, (most - too_few) * 2 // 5), prefill)


def _patience(prefill: int) -> int:
    return 8 + 4 * prefill


def _growth(block_size: int, tokens: int) -> int:
    """Blocks that a prompt of `_prompt_of` takes for its next ``tokens``."""
    return max(0, -(-(_filling(block_size) + tokens - block_size) // block_size))


def _too_small(recorder: Recorder) -> NotArisen:
    usable, about = recorder.snapshot.pool.usable, recorder.about
    longest = -(-about.max_model_len // recorder.snapshot.pool.block_size)
    if longest > 3 and usable > 8 * longest:
        return NotArisen(
            say(
                "the pool is too large: no request of at most {longest} blocks (max_model_len {tokens}) "
                "outgrows the free run of {usable} usable blocks; give it fewer, {fewer} for example",
                longest=longest,
                tokens=about.max_model_len,
                usable=usable,
                fewer=4 * longest,
            )
        )
    return NotArisen(
        say(
            "there is no room for three requests side by side and then one that is larger than each: "
            "{usable} usable blocks, max_model_len {tokens}, {budget} tokens a step",
            usable=usable,
            tokens=about.max_model_len,
            budget=about.max_num_batched_tokens,
        )
    )


def play_holes(recorder: Recorder) -> None:
    """Requests side by side; the second ends and leaves a hole; the others go on for a step; a larger one arrives."""
    layout = HolesLayout.of(recorder)
    names = [f"R{number}" for number in range(len(layout.sides))]
    for name, blocks in zip(names, layout.sides, strict=True):
        prompt = _prompt_of(recorder, name, blocks)
        lasts = recorder.about.max_model_len - len(prompt)
        recorder.add(name, prompt, 2 * layout.prefill if name == LEAVES else lasts)
    recorder.until(lambda: all(map(recorder.placed, names)), layout.patience)
    recorder.until(lambda: recorder.ended(LEAVES) and not recorder.snapshot.pool.fenced, layout.patience)
    recorder.step()
    play_alone(recorder)


def play_alone(recorder: Recorder) -> None:
    """The late request of `play_holes`, wherever there is room."""
    layout = HolesLayout.of(recorder)
    recorder.add(ARRIVES, _prompt_of(recorder, ARRIVES, layout.new), NEW_TOKENS)
    recorder.until(lambda: recorder.ended(ARRIVES), layout.patience)
    recorder.drain()


def _filling(block_size: int) -> int:
    """Tokens in the last block of a prompt, so that a few more can come before the table grows."""
    return max(1, block_size * 5 // 8)


def _prompt_of(recorder: Recorder, name: str, blocks: int) -> tuple[int, ...]:
    size = recorder.snapshot.pool.block_size
    return tokens(recorder.about.vocab_size, name, (blocks - 1) * size + _filling(size))


HOLES = Scenario("holes", say("three requests side by side, and a hole"), PLAIN, play_holes)
ALONE = Scenario("alone", say("the late request alone in the pool"), CACHING, play_alone)
