"""The sampler's rules in compiled kernels (see kernels/src/sampler.cpp): without a sort, or a tensor full of noise.

Scores, filters and random bits are those of `pellucid.runtime.sampler`. Only where two sums agree to the last digits of
a float32 may another token be chosen: the mass at which top-p cuts, or the noisy scores of the best two.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch

from pellucid.native import native
from pellucid.runtime.noise import signed

if TYPE_CHECKING:
    from pellucid.runtime.sampler import Draw


def takes(logits: torch.Tensor) -> bool:
    """Whether there are kernels for these logits, on this processor."""
    fits = logits.device.type == "cpu" and logits.dtype is torch.float32 and logits.stride(1) == 1
    return fits and native().kernels is not None


def choose_tokens(logits: torch.Tensor, draws: Sequence[Draw], random: Sequence[int]) -> torch.Tensor:
    """One token id a row, drawn in the rows ``random``, the best in the others: [len(draws)] int64."""
    tokens = torch.empty(len(draws), dtype=torch.int64)
    if len(random) < len(draws):
        native().module.argmax(logits.data_ptr(), logits.stride(0), *logits.shape, tokens.data_ptr())
    if random:
        tokens[random] = draw_tokens(logits, [draws[i] for i in random], random)
    return tokens


def draw_tokens(
    logits: torch.Tensor, draws: Sequence[Draw], rows: Sequence[int], decisions: torch.Tensor | None = None
) -> torch.Tensor:
    """Draw a token for each of ``rows`` of the logits: [len(rows)] int64.

    ``decisions`` [len(rows), 2] float32, if given, is told the lowest score (logit / temperature)
    that the filters kept, and the score, noise included, with which the token won.
    """
    kernels = native().module
    params = [draw.sampling for draw in draws]
    vocab_size = logits.shape[1]
    tokens, where = torch.empty(len(rows), dtype=torch.int64), torch.tensor(rows)
    columns = (
        torch.tensor([draw.temperature for draw in draws], dtype=torch.float32),
        torch.tensor([min(p.top_k, vocab_size) for p in params]),
        torch.tensor([p.top_p for p in params], dtype=torch.float32),
        torch.tensor([p.min_p for p in params], dtype=torch.float32),
        torch.tensor([signed(draw.key) for draw in draws]),
    )
    kernels.draw(
        logits.data_ptr(),
        logits.stride(0),
        vocab_size,
        where.data_ptr(),
        len(rows),
        *(column.data_ptr() for column in columns),
        tokens.data_ptr(),
        0 if decisions is None else decisions.data_ptr(),
    )
    return tokens
