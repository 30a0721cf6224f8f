"""Steps on a poisoned pool, and dense attention in float64 that knows nothing of blocks."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass

import torch
import torch.nn.functional as F

from pellucid.attention import KVStorage, StepLayout

LAYERS, LAYER = 3, 1
MIX = [(1, 1), (7, 7), (1, 19), (5, 23), (1, 64), (16, 16), (3, 300)]  # (tokens computed, context after them)


@dataclass
class Case:
    """A step on a pool that is NaN wherever the requests of the step have written nothing."""

    kv: KVStorage
    layout: StepLayout
    q: torch.Tensor
    k: torch.Tensor
    v: torch.Tensor
    expected: torch.Tensor
    size: torch.Tensor
    """``expected`` for the magnitudes of the values: what an error in the weights is a share of."""


def dense(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """Causal attention of the last ``len(q)`` of ``len(k)`` tokens, one query at a time, in float64."""
    out = torch.empty(q.shape, dtype=torch.float64)
    group = q.shape[1] // k.shape[1]
    keys, values = (x.double().repeat_interleave(group, dim=1) for x in (k, v))
    for i in range(len(q)):
        seen = len(k) - len(q) + i + 1
        scores = torch.einsum("khd,hd->hk", keys[:seen], q[i].double()) / math.sqrt(q.shape[2])
        out[i] = torch.einsum("hk,khd->hd", scores.softmax(-1), values[:seen])
    return out


def make_case(
    rows: list[tuple[int, int]],
    block_size: int,
    heads: int = 6,
    kv_heads: int = 2,
    dtype: torch.dtype = torch.float32,
    seed: int = 0,
    head_dim: int = 8,
) -> Case:
    torch.manual_seed(seed)
    lengths = [-(-context // block_size) for _, context in rows]
    num_blocks = sum(lengths) + 4
    kv = KVStorage(LAYERS, num_blocks, block_size, kv_heads, head_dim, dtype)
    kv.tensor.fill_(torch.nan)
    ids = list(range(1, num_blocks))
    random.Random(seed).shuffle(ids)
    tables = torch.zeros(len(rows), max(lengths), dtype=torch.int32)
    q, k, v, expected, size, slots = [], [], [], [], [], []
    for row, (count, context) in enumerate(rows):
        table = [ids.pop() for _ in range(lengths[row])]
        tables[row, : len(table)] = torch.tensor(table)
        own = [table[i // block_size] * block_size + i % block_size for i in range(context)]
        keys, values = torch.randn(2, context, kv_heads, head_dim).to(dtype)
        queries = torch.randn(count, heads, head_dim).to(dtype)
        done = context - count
        for i in range(done):
            block, offset = divmod(own[i], block_size)
            kv.tensor[LAYER, 0, block, offset], kv.tensor[LAYER, 1, block, offset] = keys[i], values[i]
        q.append(queries)
        k.append(keys[done:])
        v.append(values[done:])
        expected.append(dense(queries, keys, values))
        size.append(dense(queries, keys, values.abs()))
        slots += own[done:]
    counts = torch.tensor([count for count, _ in rows])
    layout = StepLayout(
        query_start=F.pad(counts.cumsum(0), (1, 0)).int(),
        context_lens=torch.tensor([context for _, context in rows], dtype=torch.int32),
        block_tables=tables,
        slots=torch.tensor(slots),
        max_query=max(count for count, _ in rows),
    )
    return Case(kv, layout, torch.cat(q), torch.cat(k), torch.cat(v), torch.cat(expected), torch.cat(size))
