"""Real engines under a soak."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import torch
from msgspec.structs import asdict

from pellucid import LLM
from pellucid.engine.output import RequestOutput
from pellucid.lab.bed import ALONE, Received
from pellucid.lab.load import Add, Settings
from pellucid.model import LoadedModel
from pellucid.model.llama import Model
from pellucid.ops import Scores

NUDGES = {torch.float32: 1e-3, torch.float16: 0.1, torch.bfloat16: 1.0}
"""Logits of one and the same row differ between batches, as the order of rounding does: by some 1e-5 in float32."""

FOR_ALL: dict[str, Any] = {
    "dtype": "float32",  # in which equal requests must give equal tokens
    "skip_tokenizer_init": True,
    "journal_capacity": None,
    "lazy_graphs": True,  # an engine lives for some hundred steps, of a few sizes
}


class ModelEngine:
    """A `pellucid.LLM`. ``options`` go before `FOR_ALL`."""

    def __init__(self, model: str | LoadedModel, settings: Settings, options: Mapping[str, Any]) -> None:
        self.llm = LLM(model, **{**FOR_ALL, **options, **asdict(settings)})
        self.kv = self.llm.kv

    def add(self, request: Add) -> None:
        prompt = {"prompt_token_ids": list(request.prompt), "cache_salt": request.salt}
        self.llm.add_request(request.name, prompt, request.sampling, priority=request.priority)

    def abort(self, name: str) -> Received:
        return _received(self.llm.abort_request(name))

    def move(self, block: int, to: int) -> None:
        self.llm.move_block(block, to)

    def step(self) -> list[Received]:
        return list(map(_received, self.llm.step()))

    def has_unfinished_requests(self) -> bool:
        return self.llm.has_unfinished_requests()


class ModelBed:
    """Engines of one model; the first loads the weights that all share. ``options`` are those of `pellucid.LLM`."""

    def __init__(self, model: str | LoadedModel, options: Mapping[str, Any] | None = None) -> None:
        self._model = model
        self._options = options or {}

    def __call__(self, settings: Settings) -> ModelEngine:
        engine = ModelEngine(self._model, settings, self._options)
        self._model = engine.llm.loaded
        return engine

    def nudged(self, token: int) -> ModelBed:
        loaded = self._model if isinstance(self._model, LoadedModel) else self(ALONE).llm.loaded
        return ModelBed(dataclasses.replace(loaded, model=NudgedModel(loaded.model, token)), self._options)


class NudgedModel(Model):
    """``model``, weights and all, with the logit of ``token`` higher by as much as `NUDGES` has for its type."""

    def __init__(self, model: Model, token: int) -> None:
        vars(self).update(vars(model))
        self._token = token

    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        logits = super().logits(hidden)
        logits[:, self._token] += NUDGES[self.dtype]
        return logits

    def wanted_scores(self, hidden: torch.Tensor, wanted: torch.Tensor) -> Scores:
        return Scores(self.logits(hidden), None)


def _received(output: RequestOutput) -> Received:
    completion = output.outputs[0]
    return Received(output.request_id, tuple(completion.token_ids), completion.finish_reason)
