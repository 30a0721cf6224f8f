"""How to choose the next token, and when to stop: vLLM's names and meanings."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable
from typing import Any

from pellucid.errors import RequestError, refuse_unknown_options


class _Checked(type):
    """Constructors that answer an unknown option with its nearest known name."""

    def __call__(cls, *args: Any, **options: Any) -> Any:
        names = [field.name for field in dataclasses.fields(cls)]  # type: ignore[arg-type]
        refuse_unknown_options(cls.__name__, options, names, RequestError)
        return super().__call__(*args, **options)


@dataclasses.dataclass(frozen=True, kw_only=True)
class SamplingParams(metaclass=_Checked):
    """Sampling and stopping of one request.

    ``temperature=0`` is greedy. ``top_k`` of 0 or -1 and ``top_p=1``, ``min_p=0`` switch those
    filters off. ``seed`` makes a request independent of its neighbours: its noise is keyed by
    (seed, position). ``stop_token_ids`` end the request and stay in its tokens; the model's own
    end token does too unless ``ignore_eos``; neither is possible before ``min_tokens``.
    ``max_tokens`` None means up to the engine's ``max_model_len``.
    ``skip_reading_prefix_cache`` computes everything afresh and is counted as bypass.

    Raises `RequestError` for an unknown option or a value out of range.
    """

    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    seed: int | None = None
    max_tokens: int | None = 16
    min_tokens: int = 0
    stop_token_ids: Iterable[int] = ()
    ignore_eos: bool = False
    skip_special_tokens: bool = True
    skip_reading_prefix_cache: bool = False

    def __post_init__(self) -> None:
        if not isinstance(self.stop_token_ids, Iterable | None):
            raise RequestError(f"stop_token_ids must be a list of token ids, not {self.stop_token_ids!r}.")
        object.__setattr__(self, "stop_token_ids", tuple(self.stop_token_ids or ()))
        for name in ("temperature", "top_p", "min_p"):
            _require_number(name, getattr(self, name), (int, float))
        for name in ("top_k", "min_tokens", "max_tokens", "seed"):
            _require_number(name, getattr(self, name), (int,), or_none=name in ("max_tokens", "seed"))
        for token in self.stop_token_ids:
            _require_number("stop_token_ids", token, (int,))
        self._check_ranges()

    def _check_ranges(self) -> None:
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


def _require_number(name: str, value: object, kinds: tuple[type, ...], *, or_none: bool = False) -> None:
    if (value is None and or_none) or (isinstance(value, kinds) and not isinstance(value, bool)):
        return
    raise RequestError(f"{name} must be {' or '.join(kind.__name__ for kind in kinds)}, not {value!r}.")
