"""What a caller gets back, under vLLM's names."""

from __future__ import annotations

from msgspec import Struct


class CompletionOutput(Struct, kw_only=True):
    """One continuation. ``finish_reason`` is None while it grows, then stop, length or abort.

    ``stop_reason`` is the stop token id that ended it, None for the model's own end token.
    """

    index: int
    text: str
    token_ids: list[int]
    finish_reason: str | None = None
    stop_reason: int | None = None

    def finished(self) -> bool:
        return self.finish_reason is not None


class RequestOutput(Struct, kw_only=True):
    """One request so far: everything in it is cumulative.

    ``prompt_token_ids`` is one list for all outputs of a request, as in vLLM; ``token_ids`` is each output's own.
    ``num_cached_tokens`` is how many prompt tokens the first admission found in the prefix cache:
    0 if none or with prefix caching off, None while the request has not been admitted.
    """

    request_id: str
    prompt: str | None
    prompt_token_ids: list[int]
    outputs: list[CompletionOutput]
    finished: bool
    num_cached_tokens: int | None = None
