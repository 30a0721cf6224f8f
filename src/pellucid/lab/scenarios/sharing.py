"""A common prefix: two owners at once, and a later one."""

from __future__ import annotations

from pellucid.lab.recorder import Recorder, tokens
from pellucid.lab.scenario import CACHING, PLAIN, NotArisen, Scenario
from pellucid.lang import say

FIRST, SECOND, LATER = "alice", "bob", "carol"
DOUBLED, TURNED = "dave", "erin"
"""They bring what is like the prefix and is not: its first block behind itself, and that block backwards."""


def play_sharing(recorder: Recorder) -> None:
    """Two requests with one prefix live at once; when both have ended, a third brings it again, then two its like."""
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
    block = prefix[:size]
    recorder.add(DOUBLED, block + block + block[:1], 2)
    recorder.add(TURNED, block[::-1] + block[:1], 2)
    recorder.until(lambda: recorder.ended(DOUBLED) and recorder.ended(TURNED), limit=200)
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


UNSHARED = Scenario("unshared", say("a common prefix, without the cache"), PLAIN, play_sharing)
SHARING = Scenario("sharing", say("a common prefix"), CACHING, play_sharing)
