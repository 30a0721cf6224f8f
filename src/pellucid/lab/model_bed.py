"""Real engines under a soak."""

from __future__ import annotations

import dataclasses
from typing import Any

import torch
from msgspec.structs import asdict

from pellucid import LLM
from pellucid.engine.output import RequestOutput
from pellucid.lab.bed import ALONE, Received
from pellucid.lab.load import Add, Settings
from pellucid.model import LoadedModel
from pellucid.model.llama import Model

NUDGE = 1e-3
"""Logits of one and the same row differ by some 1e-5 between batches, as the order of rounding does."""


class ModelEngine:
    """A `pellucid.LLM` in float32, in which equal requests must give equal tokens."""

    def __init__(self, model: str | LoadedModel, settings: Settings) -> None:
        options: dict[str, Any] = {"dtype": "float32", "skip_tokenizer_init": True, "journal_capacity": None}
        self.llm = LLM(model, **options, **asdict(settings))
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
    """Engines of one model; the first loads the weights that all share."""

    def __init__(self, model: str | LoadedModel) -> None:
        self._model = model

    def __call__(self, settings: Settings) -> ModelEngine:
        engine = ModelEngine(self._model, settings)
        self._model = engine.llm.loaded
        return engine

    def nudged(self, token: int) -> ModelBed:
        loaded = self._model if isinstance(self._model, LoadedModel) else self(ALONE).llm.loaded
        return ModelBed(dataclasses.replace(loaded, model=NudgedModel(loaded.model, token)))


class NudgedModel(Model):
    """``model``, weights and all, with the logit of ``token`` higher by `NUDGE`."""

    def __init__(self, model: Model, token: int) -> None:
        vars(self).update(vars(model))
        self._token = token

    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        logits = super().logits(hidden)
        logits[:, self._token] += NUDGE
        return logits


def _received(output: RequestOutput) -> Received:
    completion = output.outputs[0]
    return Received(output.request_id, tuple(completion.token_ids), completion.finish_reason)
