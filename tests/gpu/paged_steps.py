"""Random steps on a poisoned pool, and what the reference makes of them in float32."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F

from pellucid.attention import AttentionBackend, KVStorage, ReferenceAttention, StepLayout

LAYERS, LAYER = 2, 1
UNIT = {torch.float32: 2.0**-24, torch.float16: 2.0**-11, torch.bfloat16: 2.0**-8}
"""What rounding to the nearest number of a type changes, at most, as a share of the number."""


@dataclass(frozen=True)
class Sizes:
    heads: int = 6
    kv_heads: int = 2
    dim: int = 16
    block_size: int = 16


@dataclass
class Step:
    """A step on a pool that is NaN wherever its requests have written nothing, block 0 and the other layer included."""

    kv: KVStorage
    layout: StepLayout
    q: torch.Tensor
    k: torch.Tensor
    v: torch.Tensor

    def copy(self, dtype: torch.dtype) -> Step:
        """The same on a pool of its own, in another type."""
        sizes = self.kv.tensor.shape
        kv = KVStorage(sizes[0], *sizes[2:], dtype, self.q.device)
        kv.tensor.copy_(self.kv.tensor)
        return Step(kv, self.layout, *(x.to(dtype) for x in (self.q, self.k, self.v)))


def make_step(
    rows: list[tuple[int, int]], sizes: Sizes, dtype: torch.dtype, device: torch.device, draw: torch.Generator
) -> Step:
    """Requests of (tokens computed, context after them), in blocks scattered over the pool."""

    def random(*shape: int) -> torch.Tensor:
        return torch.randn(shape, generator=draw).to(device, dtype)

    counts, contexts = torch.tensor(rows).T
    lengths = [-(-context // sizes.block_size) for _, context in rows]
    num_blocks = sum(lengths) + 3
    ids = (torch.randperm(num_blocks - 1, generator=draw) + 1).int().split([*lengths, 2])
    tables = torch.nn.utils.rnn.pad_sequence(list(ids[:-1]), batch_first=True).to(device)
    kv = KVStorage(LAYERS, num_blocks, sizes.block_size, sizes.kv_heads, sizes.dim, dtype, device)
    kv.tensor.fill_(torch.nan)
    slots = []
    for table, (count, context) in zip(ids, rows, strict=False):
        places = torch.arange(context)
        own = (table.long()[places // sizes.block_size] * sizes.block_size + places % sizes.block_size).to(device)
        past = own[: context - count]
        for pool in kv.layer(LAYER):
            pool.flatten(0, 1)[past] = random(len(past), sizes.kv_heads, sizes.dim)
        slots.append(own[context - count :])
    tokens = int(counts.sum())
    layout = StepLayout(
        query_start=F.pad(counts.cumsum(0), (1, 0)).int().to(device),
        context_lens=contexts.int().to(device),
        block_tables=tables,
        slots=torch.cat(slots),
        max_query=int(counts.max()),
    )
    q, k, v = (random(tokens, heads, sizes.dim) for heads in (sizes.heads, sizes.kv_heads, sizes.kv_heads))
    return Step(kv, layout, q, k, v)


def pad(step: Step, requests: int, tokens: int, *, one_token_each: bool = False) -> Step:
    """``step`` with that much padding, whose queries are NaN. ``one_token_each``: as a step of decoding only pads."""
    layout = step.layout
    last = layout.query_start[-1:] + (torch.arange(1, requests + 1, device=step.q.device) if one_token_each else 0)
    slots = torch.arange(tokens, device=step.q.device) % step.kv.block_size
    layout = replace(
        layout,
        query_start=torch.cat((layout.query_start, last.expand(requests).int())),
        context_lens=F.pad(layout.context_lens, (0, requests)),
        block_tables=F.pad(layout.block_tables, (0, 0, 0, requests)),
        slots=torch.cat((layout.slots, slots)),
    )
    q, k, v = (F.pad(x, (0, 0, 0, 0, 0, tokens), value=torch.nan) for x in (step.q, step.k, step.v))
    return Step(step.kv, layout, q, k, v)


def expected(step: Step) -> tuple[torch.Tensor, torch.Tensor, KVStorage]:
    """What comes out in float32; the same for the magnitudes of the values; and the pool after the step."""
    exact, sizes = step.copy(torch.float32), step.copy(torch.float32)
    sizes.kv.tensor[:, 1].abs_()
    out, size = (
        ReferenceAttention().forward(LAYER, case.q, case.k, v, case.kv, case.layout)
        for case, v in ((exact, exact.v), (sizes, sizes.v.abs()))
    )
    return out, size, exact.kv


def check(backend: AttentionBackend, step: Step) -> torch.Tensor:
    """Run ``step``: its result is the reference's, but for rounding weights, values' products and the result."""
    right, size, pool = expected(step)
    out = backend.forward(LAYER, step.q, step.k, step.v, step.kv, step.layout)
    verify(out, right, size)
    torch.testing.assert_close(step.kv.tensor.float(), pool.tensor, atol=0, rtol=0, equal_nan=True)
    return out


def verify(out: torch.Tensor, right: torch.Tensor, size: torch.Tensor) -> None:
    unit = UNIT[out.dtype]
    wrong = ~((out.float() - right).abs() <= unit * right.abs() + (2 * unit + 1e-5) * size)
    assert not wrong.any(), f"{int(wrong.sum())} numbers are off, of the tokens {wrong.any(-1).any(-1).nonzero().T}"
