"""The runner: plans in, tokens out. It owns the rows and their tables, and has the use of model and pool."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

import torch

from pellucid.attention import AttentionBackend, KVStorage, StepLayout
from pellucid.ops import Scores
from pellucid.plan import StepPlan, StepResult
from pellucid.runtime.flight import InFlight
from pellucid.runtime.inputs import step_inputs
from pellucid.runtime.rows import Row, Rows
from pellucid.runtime.sampler import Draw, sample
from pellucid.runtime.tables import Tables


class CausalModel(Protocol):
    """What a runner asks of a model; `pellucid.model` has the real ones."""

    def forward(
        self,
        token_ids: torch.Tensor,
        positions: torch.Tensor,
        kv: KVStorage,
        layout: StepLayout,
        attention: AttentionBackend,
        wanted: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """[T] token ids at [T] positions to hidden states [T, hidden_size], their K and V written on the way.

        ``wanted`` (int64 [R]): the tokens whose hidden states are asked for, [R, hidden_size], instead of all.
        """

    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        """Hidden states [S, hidden_size] to float32 logits [S, vocab_size]."""

    def wanted_scores(self, hidden: torch.Tensor, wanted: torch.Tensor) -> Scores:
        """The logits of the rows where ``wanted`` [S] int32 is not 0 and the best of all rows; or all `logits`."""


class Runner:
    """Runs plans on a model. At most two may be in flight; they are collected in order.

    ``seed`` makes the requests that bring no seed of their own reproducible: each draws one from
    (``seed``, handle), so their noise depends on neighbours and batching as little as that of the others.
    ``compiled_sampling``: tokens are chosen by the compiled kernels, where they are.
    ``on_logits`` is called with each plan and its logits [S, vocab_size], of the rows that sample,
    before the sampler uses them up; a caller that keeps them makes a copy.

    `launch` raises `InvariantViolation` for a plan that does not fit the rows as earlier plans left them.
    """

    def __init__(
        self,
        model: CausalModel,
        storage: KVStorage,
        attention: AttentionBackend,
        *,
        eos_token_ids: Sequence[int] = (),
        seed: int = 0,
        compiled_sampling: bool = True,
        on_logits: Callable[[StepPlan, torch.Tensor], None] | None = None,
    ) -> None:
        self._model = model
        self._storage = storage
        self._attention = attention
        self._eos_token_ids = tuple(eos_token_ids)
        self._seed = seed
        self._compiled = compiled_sampling
        self._on_logits = on_logits
        self._rows = Rows()
        self._tables = Tables(storage.num_blocks, storage.tensor.device)
        self._flying: InFlight[torch.Tensor] = InFlight()

    @property
    def pool_address(self) -> int:
        """Where the KV pool begins, as its tensor says now."""
        return self._storage.address

    @property
    def pool_bytes(self) -> int:
        """Bytes of the KV pool, as its tensor says now."""
        return self._storage.nbytes

    @torch.inference_mode()
    def launch(self, plan: StepPlan) -> None:
        """Apply the differences of ``plan``, then run its rows. The tokens stay on the device until collected."""
        self._flying.refuse_more(plan.step)
        self._rows.apply(plan)
        self._tables.apply(plan, self._rows)
        self._storage.copy_blocks(plan.copies)
        ranges = zip(plan.handles, plan.starts, plan.counts, plan.samples, strict=True)
        rows = [self._rows.advance(*row) for row in ranges]
        self._flying.put(plan.step, self._run(plan, rows) if rows else torch.empty(0))

    def collect(self) -> StepResult:
        """The result of the oldest plan in flight; waits for the device."""
        step, tokens = self._flying.take()
        return StepResult(step, tuple(tokens.tolist()))

    def _run(self, plan: StepPlan, rows: list[Row]) -> torch.Tensor:
        """Run the model; sample, and append to the tables, one token for each of ``rows`` that samples: [S]."""
        model, storage = self._model, self._storage
        inputs = step_inputs(plan, rows, self._tables, storage.block_size)
        hidden = model.forward(
            inputs.token_ids, inputs.positions, storage, inputs.layout, self._attention, inputs.sampled
        )
        sampling = [row for row, samples in zip(rows, plan.samples, strict=True) if samples]
        if not sampling:
            return inputs.token_ids[:0]
        logits = model.logits(hidden)
        if self._on_logits:
            self._on_logits(plan, logits)
        draws = [Draw.of(row, row.known - 1, self._seed) for row in sampling]
        tokens = sample(logits, draws, self._eos_token_ids, compiled=self._compiled)
        self._tables.append_tokens(sampling, tokens)
        return tokens
