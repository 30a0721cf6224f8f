"""The same four requests wherever their blocks are: taken in order, shuffled, and moved about in mid-run."""

from __future__ import annotations

from functools import partial
from typing import Any

from pellucid.kv.block import BlockState
from pellucid.lab.recorder import Recorder, tokens
from pellucid.lab.scenario import CACHING, NotArisen, Scenario
from pellucid.lang import say

EARLY, BESIDE, BRIEF, AFTER = "ann", "ben", "dot", "cal"
OUTPUT = 5
ROUNDS = 3
"""How many times blocks are moved, a step apart: two of them, then all, then all again."""

SEED = 23
PATIENCE = 200


def play(recorder: Recorder, *, moving: bool) -> None:
    """Two live requests share a prefix, a brief one leaves a cached block; when all are done the prefix comes again."""
    size, vocab = recorder.snapshot.pool.block_size, recorder.about.vocab_size
    prefix = tokens(vocab, "placement", _common(recorder) * size)

    def add(name: str, output: int = OUTPUT) -> None:
        recorder.add(name, prefix + tokens(vocab, name, _tail(size)), output)

    recorder.add(BRIEF, tokens(vocab, BRIEF, size + 1), 1)
    add(EARLY)
    recorder.until(lambda: recorder.placed(EARLY), PATIENCE)
    add(BESIDE)
    recorder.until(lambda: recorder.placed(BESIDE) and recorder.ended(BRIEF), PATIENCE)
    moves: list[tuple[int, int]] = []
    for number in range(ROUNDS):
        if moving:
            moves = _moves(recorder, moves, everything=number > 0)
            if not recorder.move(moves):
                raise NotArisen(say("this engine does not move live blocks"))
        recorder.step()
    recorder.until(lambda: recorder.ended(EARLY) and recorder.ended(BESIDE), PATIENCE)
    add(AFTER, 2)
    recorder.until(lambda: recorder.ended(AFTER), PATIENCE)
    recorder.drain()


def _tail(size: int) -> int:
    """Tokens behind the prefix, so that the last block is partly filled."""
    return size // 2 + 1


def _common(recorder: Recorder) -> int:
    """Whole blocks of the common prefix: 2, or 1 where there is little room."""
    pool, longest = recorder.snapshot.pool, recorder.about.max_model_len
    rest = _tail(pool.block_size) + OUTPUT
    own = -(-rest // pool.block_size)
    for blocks in (2, 1):
        if blocks * pool.block_size + rest <= longest and blocks + 2 * own + 3 <= pool.usable:
            return blocks
    raise NotArisen(
        say(
            "there is no room for two requests with a whole block in common and three blocks to move to: "
            "{usable} usable blocks, max_model_len {longest}",
            usable=pool.usable,
            longest=longest,
        )
    )


def _moves(recorder: Recorder, before: list[tuple[int, int]], *, everything: bool) -> list[tuple[int, int]]:
    """The shared block and the first request's last one, which goes to a cached block; or all blocks of the two.

    The latter go to where others were until the moves ``before``, so that a table that was left as it was would now
    show another's tokens.
    """
    snapshot = recorder.snapshot
    tables = [request.blocks for request in snapshot.requests if request.blocks]
    reclaimable = snapshot.pool.reuse_order
    free = [block for block in sorted(reclaimable, reverse=True) if snapshot.pool.state(block) is BlockState.FREE]
    cached = [block for block in reclaimable if snapshot.pool.state(block) is BlockState.CACHED]
    if not tables:
        return []
    last = tables[0][-1]
    if not everything:
        return [*zip(tables[0][:1], free, strict=False), *zip((last,), cached, strict=False)]
    blocks = dict.fromkeys(block for table in tables for block in table)
    left = [block for block, _ in before]
    left = [block for block in left[1:] + left[:1] if block in free]
    return list(zip(blocks, [*left, *(block for block in free if block not in left)], strict=False))


ORDERED: dict[str, Any] = {**CACHING, "shuffle_blocks": None}
SCATTERED: dict[str, Any] = {**CACHING, "shuffle_blocks": SEED}
MOVING: dict[str, Any] = {**CACHING, "async_scheduling": True}
"""Blocks move while a step is under way that may write to them."""

PLACED = Scenario("placed", say("four requests, their blocks in order"), ORDERED, partial(play, moving=False))
SHUFFLED = Scenario("shuffled", say("the same, physical ids shuffled"), SCATTERED, partial(play, moving=False))
MOVED = Scenario("moved", say("the same, live blocks moved in mid-run"), MOVING, partial(play, moving=True))
