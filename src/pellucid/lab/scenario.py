"""The workloads: what is asked of a subject so that something can be seen.

They scale with the block size, the pool and the longest request that a subject allows. With 79 usable
blocks of 16 tokens they have the numbers of the experiment this lab grew out of: prompts of 6, 56
and 337 tokens, a common prefix of 61, three requests of 346 side by side and a hole of 22 blocks.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from pellucid.lab.recorder import Recorder, tokens
from pellucid.lang import Sentence, say


class NotArisen(Exception):
    """The subject is too small for the situation; ``reason`` says what it takes."""

    def __init__(self, reason: Sentence) -> None:
        super().__init__(reason)
        self.reason = reason


class Scenario(NamedTuple):
    """``play`` drives a recorder over an idle subject that was made with ``settings``."""

    name: str
    about: str
    settings: dict[str, Any]
    play: Callable[[Recorder], None]


LEAVES, ARRIVES = "R1", "NEW"
FIRST, SECOND, LATER = "alice", "bob", "carol"
STOPPED = "medium"
NEW_TOKENS = 4


# -- holes -----------------------------------------------------------------------------------------


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
    """Requests side by side; the second ends and leaves a hole; a larger one arrives."""
    layout = HolesLayout.of(recorder)
    names = [f"R{number}" for number in range(len(layout.sides))]
    for name, blocks in zip(names, layout.sides, strict=True):
        prompt = _prompt_of(recorder, name, blocks)
        lasts = recorder.about.max_model_len - len(prompt)
        recorder.add(name, prompt, 2 * layout.prefill if name == LEAVES else lasts)
    recorder.until(lambda: all(map(recorder.placed, names)), layout.patience)
    recorder.until(lambda: recorder.ended(LEAVES) and not recorder.snapshot.pool.fenced, layout.patience)
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


# -- a mixed run -----------------------------------------------------------------------------------


def play_mixed(recorder: Recorder) -> None:
    """Short and long prompts, prompts at the edge of a block, late arrivals, and one that is stopped."""
    size, usable = recorder.snapshot.pool.block_size, recorder.snapshot.pool.usable
    long = min(21 * size + 1, max(usable // 3, 1) * size)
    early = {"short": (size * 3 // 8, 20), STOPPED: (3 * size + size // 2, 40), "long": (long, 8)}
    late = {"one less": (size - 1, 4), "exact": (size, 4), "one more": (size + 1, 4)}
    _add_all(recorder, early)
    recorder.step()
    recorder.step()
    _add_all(recorder, late)
    for _ in range(6):
        recorder.step()
    if not recorder.ended(STOPPED):
        recorder.abort(STOPPED)
    recorder.until(lambda: not recorder.snapshot.requests, limit=200)
    recorder.drain()


def _add_all(recorder: Recorder, lengths: dict[str, tuple[int, int]]) -> None:
    about = recorder.about
    for name, (length, output) in lengths.items():
        output = min(output, about.max_model_len // 2)
        length = max(1, min(length, about.max_model_len - output))
        recorder.add(name, tokens(about.vocab_size, name, length), output)


# -- a common prefix -------------------------------------------------------------------------------


def play_sharing(recorder: Recorder) -> None:
    """Two requests with one prefix live at once; when both have ended, a third brings it again."""
    size, about = recorder.snapshot.pool.block_size, recorder.about
    prefix = tokens(about.vocab_size, "prefix", _common(recorder) * size + size * 13 // 16)

    def add(name: str, length: int, output: int) -> None:
        recorder.add(name, prefix + tokens(about.vocab_size, name, length), output)

    add(FIRST, size // 2 + 1, 12)
    recorder.until(lambda: recorder.placed(FIRST), limit=200)
    add(SECOND, size + 1, 4)
    recorder.until(lambda: recorder.ended(FIRST) and recorder.ended(SECOND), limit=200)
    recorder.until(lambda: not recorder.snapshot.pool.fenced, limit=2)
    add(LATER, size // 4 + 1, 4)
    recorder.until(lambda: recorder.ended(LATER), limit=200)
    recorder.drain()


def _common(recorder: Recorder) -> int:
    """Whole blocks of the common prefix: 3, or fewer where requests must be short."""
    pool, longest = recorder.snapshot.pool, recorder.about.max_model_len
    for blocks in (3, 2, 1):
        most = blocks * pool.block_size + pool.block_size * 13 // 16 + pool.block_size + 1 + 12
        if most <= longest and blocks + 2 * (2 + 12 // pool.block_size + 1) <= pool.usable:
            return blocks
    raise NotArisen(
        say(
            "there is no room for two requests with a whole block in common: "
            "{usable} usable blocks, max_model_len {tokens}",
            usable=pool.usable,
            tokens=longest,
        )
    )


PLAIN: dict[str, Any] = {"enable_prefix_caching": False}
CACHING: dict[str, Any] = {"enable_prefix_caching": True}

HOLES = Scenario("holes", say("three requests side by side, and a hole"), PLAIN, play_holes)
MIXED = Scenario("mixed", say("requests of many lengths"), PLAIN, play_mixed)
UNSHARED = Scenario("unshared", say("a common prefix, without the cache"), PLAIN, play_sharing)
SHARING = Scenario("sharing", say("a common prefix"), CACHING, play_sharing)
ALONE = Scenario("alone", say("the late request alone in the pool"), CACHING, play_alone)

SCENARIOS = (HOLES, MIXED, UNSHARED, SHARING, ALONE)
"""Those of equal settings stand together, so that one engine can play them one after the other."""
