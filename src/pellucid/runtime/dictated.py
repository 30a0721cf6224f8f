"""Forced tokens through the arithmetic of a real model: it computes everything, and is told what to say."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Protocol

import torch

from pellucid.attention import AttentionBackend, KVStorage, StepLayout
from pellucid.errors import InvariantViolation
from pellucid.model import Model
from pellucid.ops import Scores
from pellucid.plan import StepPlan, StepResult
from pellucid.runtime.forced import ForcedOutputs, ForcedRunner

LOUD = 1e30
"""The logit of a token that is to be said: no other comes near, and no temperature makes it infinite."""


class Runs(Protocol):
    """What is asked of a runner here."""

    def launch(self, plan: StepPlan) -> None: ...

    def collect(self) -> StepResult: ...


class DictatedModel:
    """``model``, except that of ``rows`` rows at most, row i of the next step says ``tokens[i]``.

    ``heard`` [rows, vocab_size] float32 are the logits that the last step had before. Both tensors stay where they are,
    so that a step captured in a CUDA graph finds them.
    """

    def __init__(self, model: Model, rows: int) -> None:
        self._model = model
        self.tokens = torch.zeros(rows, dtype=torch.int64, device=model.device)
        self.heard = torch.zeros(rows, model.config.vocab_size, device=model.device)

    def forward(
        self,
        token_ids: torch.Tensor,
        positions: torch.Tensor,
        kv: KVStorage,
        layout: StepLayout,
        attention: AttentionBackend,
        wanted: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """That of the model."""
        return self._model.forward(token_ids, positions, kv, layout, attention, wanted)

    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        """Hidden states [R, hidden_size] to float32 logits [R, vocab_size], one of each row `LOUD`."""
        logits = self._model.logits(hidden)
        rows = len(logits)
        self.heard[:rows] = logits
        return logits.scatter_(1, self.tokens[:rows, None], LOUD)

    def wanted_scores(self, hidden: torch.Tensor, wanted: torch.Tensor) -> Scores:
        """`logits`, of all rows."""
        return Scores(self.logits(hidden), None)


class Dictation:
    """An executor that samples ``outputs``, as `ForcedRunner` does, but by way of ``runner``, whose model is ``model``.

    ``every_row``: the runner has logits of every row of a plan, as `DeviceRunner` does, not only of those that sample.
    ``on_logits`` is called when a plan is collected, with the plan and its logits [S, vocab_size] of the rows that
    sample, as the model had them; so no other may be in flight. `collect` raises `InvariantViolation` if the
    runner has sampled something else.
    """

    def __init__(
        self,
        runner: Runs,
        model: DictatedModel,
        outputs: ForcedOutputs,
        *,
        every_row: bool,
        on_logits: Callable[[StepPlan, torch.Tensor], None] | None = None,
    ) -> None:
        self._runner, self._model, self._every_row = runner, model, every_row
        self._forced = ForcedRunner(outputs)
        self._on_logits = on_logits
        self._flying: deque[tuple[StepPlan, StepResult]] = deque()

    def launch(self, plan: StepPlan) -> None:
        """Tell the model what to say, behind all that was launched before, and launch ``plan``."""
        self._forced.launch(plan)
        result = self._forced.collect()
        said = iter(result.tokens)
        rows = [next(said) if samples else 0 for samples in plan.samples] if self._every_row else list(result.tokens)
        tokens = torch.tensor(rows, dtype=torch.int64).clamp(min=0)  # past the end any will do
        self._model.tokens[: len(rows)].copy_(tokens)
        self._runner.launch(plan)
        self._flying.append((plan, result))

    def collect(self) -> StepResult:
        """The result of the oldest plan in flight."""
        sampled = self._runner.collect()
        plan, result = self._flying.popleft()
        pairs = zip(sampled.tokens, result.tokens, strict=True)
        if sampled.step != result.step or any(said != told for said, told in pairs if told >= 0):
            raise InvariantViolation(f"{sampled} was sampled where {result} had been dictated.")
        if self._on_logits:
            samples = plan.samples if self._every_row else [True] * len(result.tokens)
            rows = torch.tensor(
                [row for row, sampled in enumerate(samples) if sampled], device=self._model.heard.device
            )
            self._on_logits(plan, self._model.heard[rows.long()])
        return result
