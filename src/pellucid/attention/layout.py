"""Where the tokens of one step stand: which request, which blocks, which slots."""

from __future__ import annotations

from dataclasses import dataclass

import torch


@dataclass(frozen=True, eq=False)
class StepLayout:
    """The rows of one step as attention sees them: R requests that compute T tokens together.

    A *slot* is the place of one token in the pool: ``block * block_size + offset``. The queries of
    request ``r`` are its last ``query_start[r + 1] - query_start[r]`` tokens of context, so decoding,
    prefill and a chunk of a prefill differ in numbers only.

    A padding request has ``context_lens`` 0 and a table of zeros, and its slots lie in the reserved
    block 0. Tokens after ``query_start[R]`` are padding too.
    """

    query_start: torch.Tensor
    """[R + 1] int32: request ``r`` owns the tokens ``query_start[r] .. query_start[r + 1] - 1``."""
    context_lens: torch.Tensor
    """[R] int32: tokens of each request that have K and V once this step has written its own."""
    block_tables: torch.Tensor
    """[R, W] int32: the blocks of each request in order, padded with 0."""
    slots: torch.Tensor
    """[T] int64: where the K and V of each token go."""
    max_query: int
    """The most tokens that any one request computes, or more."""
    apart: bool = False
    """Whether all compute one token, and none reads K and V that another one writes in this step. (That somebody does
    is unknown, if this is not so.)"""
