"""``vllm.SamplingParams``: vLLM's names for everything, of which ours are handed on and the rest must be neutral."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from typing import Any

from pellucid import plan
from pellucid.compat.uncovered import Part, is_neutral
from pellucid.errors import NotCovered

OURS = tuple(plan.SamplingParams.__annotations__)


class RequestOutputKind(enum.Enum):
    """What `step` returns of a request: all it has so far, the news, or nothing until it is complete."""

    CUMULATIVE = 0
    DELTA = 1
    FINAL_ONLY = 2


LACKING = {
    "n": 1,
    "best_of": 1,
    "presence_penalty": 0.0,
    "frequency_penalty": 0.0,
    "repetition_penalty": 1.0,
    "length_penalty": 1.0,
    "detokenize": True,
    "spaces_between_special_tokens": True,
    "output_kind": RequestOutputKind.CUMULATIVE,
    "stop": None,
    "logprobs": None,
    "prompt_logprobs": None,
    "structured_outputs": None,
    "guided_decoding": None,
    "logit_bias": None,
    "allowed_token_ids": None,
    "bad_words": None,
    "logits_processors": None,
    "truncate_prompt_tokens": None,
    "extra_args": None,
    "include_stop_str_in_output": False,
}
"""What vLLM's sampling can do and ours can not, with the value that leaves it off."""


class SamplingParams(Part):
    """vLLM's sampling parameters, changeable until the request is submitted.

    Raises `NotCovered` for an option that Pellucid lacks and a value that asks for it, `RequestError`
    for a value out of range.
    """

    _path = "vllm.SamplingParams"

    def __init__(self, **given: Any) -> None:
        defaults = plan.SamplingParams()
        vars(self).update({name: getattr(defaults, name) for name in OURS} | LACKING | given)
        self._ours()

    def clone(self) -> SamplingParams:
        return SamplingParams(**vars(self))

    def __repr__(self) -> str:
        return f"SamplingParams({', '.join(f'{name}={getattr(self, name)!r}' for name in OURS)})"

    def _ours(self) -> plan.SamplingParams:
        """The same for our engine."""
        for name, value in vars(self).items():
            if name not in OURS and not is_neutral(value, LACKING.get(name)):
                raise NotCovered(
                    f"SamplingParams({name}={value!r}) is not covered by `pellucid run`; leave {name} out; "
                    f"covered there: {', '.join(OURS)}."
                )
        ours = {name: getattr(self, name) for name in OURS}
        ours["stop_token_ids"] = tuple(self.stop_token_ids or ())
        ours["skip_reading_prefix_cache"] = bool(self.skip_reading_prefix_cache)
        ours["seed"] = None if self.seed == -1 else self.seed  # vLLM's other way to say "no seed"
        return plan.SamplingParams(**ours)


def ours(params: SamplingParams | Sequence[SamplingParams] | None) -> Any:
    """One or many of a script's sampling parameters as our engine takes them."""
    if params is None or isinstance(params, SamplingParams):
        return params and params._ours()
    return [one._ours() for one in params]
