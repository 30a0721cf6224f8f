"""The tensors that a model needs for one step, made from a plan and the tables."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from pellucid.attention.layout import StepLayout
from pellucid.plan import StepPlan
from pellucid.runtime.rows import Row
from pellucid.runtime.tables import Tables, check_room


@dataclass(frozen=True, eq=False)
class StepInputs:
    """R rows that compute T tokens together, S of which are followed by a sample."""

    token_ids: torch.Tensor
    """[T] int64."""
    positions: torch.Tensor
    """[T] int64: of each token in its own request."""
    layout: StepLayout
    sampled: torch.Tensor
    """[S] int64: the last token of every row that samples, as an index into T."""


def step_inputs(plan: StepPlan, rows: list[Row], tables: Tables, block_size: int) -> StepInputs:
    """The inputs of ``plan``, whose rows, in its order, are ``rows``.

    Token ids, positions and slots are computed on the device; the host sends three numbers a row.
    Raises `InvariantViolation` for a row whose block table is too short for its tokens.
    """
    ends = [start + count for start, count in zip(plan.starts, plan.counts, strict=True)]
    for row, end in zip(rows, ends, strict=True):
        check_room(row.handle, tables.length(row), block_size, end)
    device = tables.tokens.device
    lines, starts, counts = torch.tensor([[row.index for row in rows], plan.starts, plan.counts], device=device)
    query_start = torch.nn.functional.pad(counts.cumsum(0), (1, 0))
    total = sum(plan.counts)
    # For each token: which of the R rows it belongs to, and with that all the rest.
    owner = torch.repeat_interleave(torch.arange(len(rows), device=device), counts, output_size=total)
    positions = torch.arange(total, device=device) - query_start[owner] + starts[owner]
    blocks = tables.blocks[lines[owner], positions // block_size]
    layout = StepLayout(
        query_start=query_start.int(),
        context_lens=(starts + counts).int(),
        block_tables=tables.blocks[lines, : -(-max(ends) // block_size)],
        slots=blocks.long() * block_size + positions % block_size,
        max_query=max(plan.counts),
    )
    sampled = query_start[1:][torch.tensor(plan.samples, device=device)] - 1
    return StepInputs(tables.tokens[lines[owner], positions], positions, layout, sampled)
