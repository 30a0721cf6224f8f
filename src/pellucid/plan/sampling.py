"""How to choose the next token, and when to stop: vLLM's names and meanings."""

from __future__ import annotations

import math

from msgspec import Struct

from pellucid.errors import RequestError


class SamplingParams(Struct, frozen=True, kw_only=True):
    """Sampling and stopping of one request.

    ``temperature=0`` is greedy. ``top_k`` of 0 or -1 and ``top_p=1``, ``min_p=0`` switch those
    filters off. ``seed`` makes a request independent of its neighbours: its noise is keyed by
    (seed, position). ``stop_token_ids`` end the request and stay in its tokens; the model's own
    end token does too unless ``ignore_eos``; neither is possible before ``min_tokens``.
    ``skip_reading_prefix_cache`` computes everything afresh and is counted as bypass.

    Raises `RequestError` for a value out of range.
    """

    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    seed: int | None = None
    max_tokens: int | None = 16
    min_tokens: int = 0
    stop_token_ids: tuple[int, ...] = ()
    ignore_eos: bool = False
    skip_special_tokens: bool = True
    skip_reading_prefix_cache: bool = False

    def __post_init__(self) -> None:
        if not (math.isfinite(self.temperature) and self.temperature >= 0):
            raise RequestError(f"temperature must be 0 (greedy) or more, not {self.temperature}.")
        if not 0 < self.top_p <= 1:
            raise RequestError(f"top_p must lie in (0, 1], not {self.top_p}; 1 switches it off.")
        if self.top_k < -1:
            raise RequestError(f"top_k must be a count, or 0 or -1 for all tokens, not {self.top_k}.")
        if not 0 <= self.min_p <= 1:
            raise RequestError(f"min_p must lie in [0, 1], not {self.min_p}; 0 switches it off.")
        if self.max_tokens is not None and self.max_tokens < 1:
            raise RequestError(f"max_tokens must be at least 1, not {self.max_tokens}.")
        if self.min_tokens < 0:
            raise RequestError(f"min_tokens must be 0 or more, not {self.min_tokens}.")
        if self.max_tokens is not None and self.min_tokens > self.max_tokens:
            raise RequestError(
                f"min_tokens={self.min_tokens} is more than max_tokens={self.max_tokens}; change one of them."
            )
