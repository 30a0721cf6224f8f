"""Choosing the next token of every row from its logits.

The order is vLLM's: forbidden stop tokens, then greedy rows are done; temperature, min-p, top-k, top-p, draw.
Where there are compiled kernels they choose (`pellucid.runtime.compiled_sampler`); what is here runs everywhere,
and is what they are tested against.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import torch

from pellucid.plan import SamplingParams
from pellucid.runtime import compiled_sampler
from pellucid.runtime.noise import gumbel_noise, stream_key

if TYPE_CHECKING:
    from pellucid.runtime.lines import Occupant
    from pellucid.runtime.rows import Row

GREEDY_BELOW = 1e-5
"""A temperature below this is greedy, as in vLLM: dividing by it would only risk an overflow."""

ROWS_AT_ONCE = 8
"""Drawing needs several tensors as large as the logits; of so few rows they fit into a processor's cache."""


class Draw(NamedTuple):
    """How one row samples: its parameters, and what its noise is keyed by."""

    sampling: SamplingParams
    seed: int
    position: int
    """Of the token to be sampled, in prompt and output together."""
    output_index: int
    """The same, counted from the end of the prompt."""

    @classmethod
    def of(cls, request: Row | Occupant, position: int, seed: int) -> Draw:
        """How ``request`` samples its token at ``position``. One without a seed draws it from (``seed``, handle)."""
        own = request.sampling.seed
        own = stream_key(seed, request.handle) if own is None else own
        return cls(request.sampling, own, position, output_index=position - request.prompt_len)

    @property
    def temperature(self) -> float:
        """As large as a float32 can be, at most: a forbidden token's -inf over infinity would be no number."""
        return min(float(self.sampling.temperature), torch.finfo(torch.float32).max)

    @property
    def key(self) -> int:
        """Where the stream of the row's random numbers starts, below 2**64."""
        return stream_key(self.seed, self.position)


def sample(
    logits: torch.Tensor, draws: Sequence[Draw], eos_token_ids: Sequence[int] = (), *, compiled: bool = True
) -> torch.Tensor:
    """One token id a row: [len(draws)] int64 from ``logits`` [len(draws), vocab_size] float32.

    ``logits`` is used up: it may be changed in place. Equal logits of a greedy row give the lowest id.
    The ids in ``stop_token_ids`` and ``eos_token_ids`` must lie inside the vocabulary. ``compiled``: by the compiled
    kernels, where they are.
    """
    forbid_stops(logits, draws, eos_token_ids)
    random = [i for i, draw in enumerate(draws) if draw.sampling.temperature >= GREEDY_BELOW]
    choose = compiled_sampler.choose_tokens if compiled and compiled_sampler.takes(logits) else choose_tokens
    return choose(logits, draws, random)


def choose_tokens(logits: torch.Tensor, draws: Sequence[Draw], random: Sequence[int]) -> torch.Tensor:
    """One token id a row, drawn in the rows ``random``, the best in the others: [len(draws)] int64."""
    tokens = logits.argmax(-1)
    for at in range(0, len(random), ROWS_AT_ONCE):
        rows = random[at : at + ROWS_AT_ONCE]
        tokens[rows] = draw_tokens(logits[rows], [draws[i] for i in rows])
    return tokens


def forbid_stops(logits: torch.Tensor, draws: Sequence[Draw], eos_token_ids: Sequence[int]) -> None:
    """Below ``min_tokens`` outputs neither a stop token nor the end token can be sampled, ``ignore_eos`` or not."""
    for i, draw in enumerate(draws):
        if draw.output_index < draw.sampling.min_tokens:
            logits[i, [*draw.sampling.stop_token_ids, *eos_token_ids]] = -torch.inf


def draw_tokens(logits: torch.Tensor, draws: Sequence[Draw]) -> torch.Tensor:
    """Draw from the softmax of the filtered logits by the Gumbel-max trick: argmax of logits plus Gumbel noise."""
    params = [draw.sampling for draw in draws]
    scores = keep_likely(logits / column([draw.temperature for draw in draws], logits), params)
    return scores.add_(gumbel_noise([draw.key for draw in draws], scores.shape[1], scores.device)).argmax(-1)


def keep_likely(scores: torch.Tensor, params: Sequence[SamplingParams]) -> torch.Tensor:
    """Set what min-p, then top-k, then top-p leave out to -inf, in ``scores`` [rows, vocab_size] itself."""
    vocab_size = scores.shape[1]
    if any(p.min_p for p in params):
        least = scores.amax(-1, keepdim=True) + column([p.min_p for p in params], scores).log()
        scores.masked_fill_(scores < least, -torch.inf)
    sorting = [i for i, p in enumerate(params) if 0 < p.top_k < vocab_size or p.top_p < 1]
    if sorting:
        scores[sorting] = keep_top(scores[sorting], [params[i] for i in sorting])
    return scores


def keep_top(scores: torch.Tensor, params: Sequence[SamplingParams]) -> torch.Tensor:
    """Top-k, then top-p over what is left: tokens keep their score or get -inf.

    Top-p keeps the likeliest tokens until their mass reaches ``top_p``, the one that reaches it
    included. Both cut at a score, so equal tokens stay or go together, whatever order a sort gave them.
    """
    vocab_size = scores.shape[1]
    counts = [min(p.top_k, vocab_size) if p.top_k > 0 else vocab_size for p in params]
    top = scores.topk(max(counts), sorted=True).values
    least = top.gather(1, column(counts, scores).long() - 1)
    scores = scores.masked_fill(scores < least, -torch.inf)
    top = top.masked_fill(top < least, -torch.inf)
    mass = (top - scores.logsumexp(-1, keepdim=True)).exp()
    before = mass.cumsum(-1) - mass
    enough = column([p.top_p if p.top_p < 1 else torch.inf for p in params], scores)
    enough = enough.clamp(min=torch.finfo(scores.dtype).tiny)  # a smaller one is 0, and would leave nothing
    least = top.masked_fill(before >= enough, torch.inf).amin(-1, keepdim=True)
    return scores.masked_fill(scores < least, -torch.inf)


def column(values: Sequence[float], like: torch.Tensor) -> torch.Tensor:
    """One number a row, [rows, 1], of the type and on the device of ``like``."""
    return torch.tensor(values, dtype=like.dtype, device=like.device).unsqueeze(1)
