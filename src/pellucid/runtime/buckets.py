"""The sizes a step can have: few enough to capture each, close enough to waste little."""

from __future__ import annotations

from bisect import bisect_left
from typing import NamedTuple

from pellucid.errors import InvariantViolation

BOUND = 128
"""Rows: products of more are bound by arithmetic, not by reading weights, so that rows of padding cost as others do."""


class Bucket(NamedTuple):
    """A step padded to ``tokens`` tokens in ``rows`` rows; ``decode`` if every row computes exactly one, and none reads
    what another writes."""

    tokens: int
    rows: int
    decode: bool


class Buckets:
    """Steps that only decode are as large as their rows, padded a little; all others have the most rows there can be.

    ``largest_first`` has each of them: captured in this order, the small ones fit into the memory of the large ones.
    """

    def __init__(self, max_num_seqs: int, max_num_batched_tokens: int) -> None:
        self.max_rows, self.max_tokens = max_num_seqs, max(max_num_seqs, max_num_batched_tokens)
        few = (*(size for size in (1, 2, 4) if size < max_num_seqs), *ladder(8, min(max_num_seqs, BOUND), 4))
        many = tuple(size for size in ladder(16, max_num_seqs, 8) if size > BOUND)
        self._decode = few + many
        self._mixed = ladder(64, self.max_tokens, 4)
        decode = [Bucket(rows, rows, True) for rows in self._decode]
        mixed = [Bucket(tokens, max_num_seqs, False) for tokens in self._mixed]
        self.largest_first = tuple(sorted(decode + mixed, reverse=True))

    def holding(self, tokens: int, rows: int, *, admits: bool = False) -> Bucket:
        """The smallest bucket for so many tokens in so many rows. Raises `InvariantViolation` if there is none.

        ``admits``: some requests are new, so blocks of their prefix may be written by others, if there are any, in the
        same step.
        """
        if rows > self.max_rows or tokens > self.max_tokens:
            raise InvariantViolation(
                f"A step of {tokens} tokens in {rows} rows is larger than the {self.max_tokens} in {self.max_rows} "
                "that the runner was made for."
            )
        if tokens == rows and not (admits and rows > 1):
            size = self._decode[bisect_left(self._decode, rows)]
            return Bucket(size, size, True)
        return Bucket(self._mixed[bisect_left(self._mixed, tokens)], self.max_rows, False)


def ladder(step: int, most: int, rungs: int) -> tuple[int, ...]:
    """Sizes from ``step`` to ``most``: ``step`` apart, and where that is finer, ``rungs`` to the next power of two."""
    sizes = []
    size = step
    while size < most:
        sizes.append(size)
        size += max(step, 2 ** (size.bit_length() - 1) // rungs)
    return (*sizes, most)
