"""Which token comes next: like a greedy model, a function of the prompt and the position, and of nothing else."""

from __future__ import annotations

import zlib
from collections.abc import Sequence

from attach.stub.options import END_TOKEN, Options

VOCABULARY = 32_000


def next_token(prompt: Sequence[int], position: int, forced: Sequence[int] = (), options: Options | None = None) -> int:
    """The token at ``position`` (0 is the prompt's first token): the forced one, the end, or a hash above 1,000."""
    output = position - len(prompt)
    if output < len(forced):
        return forced[output]
    if options and output + 1 == options.end_after:
        return END_TOKEN
    return 1_000 + zlib.crc32(repr((tuple(prompt), position)).encode()) % (VOCABULARY - 1_000)
