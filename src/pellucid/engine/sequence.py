"""A request on its way through the engine: its tokens, its table, and when it must stop."""

from __future__ import annotations

from pellucid.kv.table import BlockTable
from pellucid.plan.request import Request


class Sequence:
    """The scheduler's view of one submission.

    ``tokens`` are all known ids, prompt then output, and the very list that ``table`` reads.
    ``horizon`` counts them together with those that launched steps will sample and nobody has seen
    yet: what the next plan may count on. No step is planned past ``limit`` tokens.
    ``handle`` is unique per submission, in order of arrival.
    """

    __slots__ = (
        "finish_reason",
        "handle",
        "horizon",
        "limit",
        "name",
        "prompt_len",
        "request",
        "stop_from",
        "stop_ids",
        "stop_reason",
        "table",
        "tokens",
    )

    def __init__(
        self, request: Request, handle: int, tokens: list[int], table: BlockTable, limit: int, eos: tuple[int, ...]
    ) -> None:
        self.request = request
        self.name = request.name
        self.handle = handle
        self.tokens = tokens
        self.table = table
        self.prompt_len = len(request.prompt)
        self.limit = limit
        self.horizon = len(tokens)
        sampling = request.sampling
        self.stop_ids = frozenset(sampling.stop_token_ids) | frozenset(() if sampling.ignore_eos else eos)
        self.stop_from = self.prompt_len + sampling.min_tokens
        self.finish_reason: str | None = None
        self.stop_reason: int | None = None

    @property
    def pending(self) -> int:
        """Tokens that launched steps will sample and nobody has seen yet."""
        return self.horizon - len(self.tokens)

    @property
    def output(self) -> list[int]:
        return self.tokens[self.prompt_len :]

    def accept(self, token: int) -> bool:
        """Append a sampled token; True if the request has ended with it (`finish_reason` says why)."""
        tokens = self.tokens
        tokens.append(token)
        length = len(tokens)
        if token in self.stop_ids and length >= self.stop_from:
            self.finish_reason = "stop"
            if token in self.request.sampling.stop_token_ids:
                self.stop_reason = token
        elif length >= self.limit:
            self.finish_reason = "length"
        return self.finish_reason is not None

    @property
    def rank(self) -> tuple[int, int]:
        """Order under the priority policy: the smaller goes first, the largest is the victim."""
        return (self.request.priority, self.handle)
