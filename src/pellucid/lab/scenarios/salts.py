"""One prompt under several cache salts."""

from __future__ import annotations

from typing import NamedTuple

from pellucid.lab.recorder import PATIENCE, Recorder, tokens
from pellucid.lab.scenario import CACHING, NotArisen, Scenario
from pellucid.lang import say

OUTPUT = 4
SPLIT = "split"
WHOLE, REST = 164, 64
"""First tokens of the prompt and of that of `SPLIT`, whose salt ends with the digit between them.

Written one after the other, salt and tokens of the two read the same: only who keeps salt and prompt apart
can tell them apart.
"""


class Salted(NamedTuple):
    """A request and its cache salt. ``again`` says that one of the same salt came before it."""

    name: str
    salt: str | None
    again: bool


FIRST_ROUND = (Salted("red", "red", False),)
SECOND_ROUND = (Salted("red too", "red", True), Salted("tan", "tan", False), Salted("plain", None, False))
THIRD_ROUND = (
    Salted("red again", "red", True),
    Salted("tan too", "tan", True),
    Salted("plain too", None, True),
    Salted(SPLIT, "red1", False),
)
SALTED = FIRST_ROUND + SECOND_ROUND + THIRD_ROUND


def play_salts(recorder: Recorder) -> None:
    """A prompt under one salt; while it lives, under the same, another, and none; when all have ended, under each."""
    length = _blocks(recorder) * recorder.snapshot.pool.block_size
    prompt = (WHOLE, *tokens(recorder.about.vocab_size, "salts", length - 1))
    for name, salt, _ in FIRST_ROUND:
        recorder.add(name, prompt, OUTPUT, salt)
    recorder.until(lambda: recorder.placed("red"), PATIENCE)
    added = [salted.name for salted in FIRST_ROUND]
    for salted in (SECOND_ROUND, THIRD_ROUND):
        for name, salt, _ in salted:
            recorder.add(name, (REST, *prompt[1:]) if name == SPLIT else prompt, OUTPUT, salt)
            added.append(name)
        recorder.until_ended(*added)
        recorder.until(lambda: not recorder.snapshot.pool.fenced, limit=2)
    recorder.drain()


def _blocks(recorder: Recorder) -> int:
    """Blocks of the prompt: 3, or 2 where there is less room. Raises `NotArisen` if a request must be shorter."""
    pool, longest = recorder.snapshot.pool, recorder.about.max_model_len
    if longest < 2 * pool.block_size + OUTPUT:
        raise NotArisen(
            say(
                "a prompt of two blocks of {size} and {output} new tokens are needed; max_model_len is {longest}",
                size=pool.block_size,
                output=OUTPUT,
                longest=longest,
            )
        )
    return 3 if pool.usable >= 15 and longest >= 3 * pool.block_size + OUTPUT else 2


SALTS = Scenario("salts", say("one prompt under several salts"), CACHING, play_salts)
