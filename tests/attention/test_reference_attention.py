"""The reference backend against dense attention in float64 that knows nothing of blocks."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass

import pytest
import torch

from pellucid.attention import KVStorage, ReferenceAttention, StepLayout

HEAD_DIM = 8
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


def dense(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """Causal attention of the last ``len(q)`` tokens, one query and one head at a time, in float64."""
    out = torch.empty(q.shape, dtype=torch.float64)
    group = q.shape[1] // k.shape[1]
    for i in range(len(q)):
        seen = len(k) - len(q) + i + 1
        for head in range(q.shape[1]):
            keys, values = k[:seen, head // group].double(), v[:seen, head // group].double()
            weights = (keys @ q[i, head].double() / math.sqrt(q.shape[2])).softmax(0)
            out[i, head] = weights @ values
    return out


def make_case(
    rows: list[tuple[int, int]],
    block_size: int,
    heads: int = 6,
    kv_heads: int = 2,
    dtype: torch.dtype = torch.float32,
    seed: int = 0,
) -> Case:
    torch.manual_seed(seed)
    lengths = [-(-context // block_size) for _, context in rows]
    num_blocks = sum(lengths) + 4
    kv = KVStorage(LAYERS, num_blocks, block_size, kv_heads, HEAD_DIM, dtype)
    kv.tensor.fill_(torch.nan)
    ids = list(range(1, num_blocks))
    random.Random(seed).shuffle(ids)
    tables = torch.zeros(len(rows), max(lengths), dtype=torch.int32)
    q, k, v, expected, slots = [], [], [], [], []
    for row, (count, context) in enumerate(rows):
        table = [ids.pop() for _ in range(lengths[row])]
        tables[row, : len(table)] = torch.tensor(table)
        own = [table[i // block_size] * block_size + i % block_size for i in range(context)]
        keys, values = torch.randn(2, context, kv_heads, HEAD_DIM).to(dtype)
        queries = torch.randn(count, heads, HEAD_DIM).to(dtype)
        done = context - count
        for i in range(done):
            block, offset = divmod(own[i], block_size)
            kv.tensor[LAYER, 0, block, offset], kv.tensor[LAYER, 1, block, offset] = keys[i], values[i]
        q.append(queries)
        k.append(keys[done:])
        v.append(values[done:])
        expected.append(dense(queries, keys, values))
        slots += own[done:]
    counts = torch.tensor([count for count, _ in rows])
    layout = StepLayout(
        query_start=torch.nn.functional.pad(counts.cumsum(0), (1, 0)).int(),
        context_lens=torch.tensor([context for _, context in rows], dtype=torch.int32),
        block_tables=tables,
        slots=torch.tensor(slots),
        max_query=max(count for count, _ in rows),
        max_context=max(context for _, context in rows),
    )
    return Case(kv, layout, torch.cat(q), torch.cat(k), torch.cat(v), torch.cat(expected))


def run(case: Case) -> torch.Tensor:
    return ReferenceAttention().forward(LAYER, case.q, case.k, case.v, case.kv, case.layout)


@pytest.mark.parametrize("block_size", [2**i for i in range(9)])
def test_mixed_step_equals_dense_attention(block_size: int) -> None:
    case = make_case(MIX, block_size, seed=block_size)
    torch.testing.assert_close(run(case).double(), case.expected, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize(("heads", "kv_heads"), [(4, 4), (9, 3), (8, 2), (4, 1)])
def test_query_heads_share_their_kv_head(heads: int, kv_heads: int) -> None:
    case = make_case(MIX, 16, heads, kv_heads)
    torch.testing.assert_close(run(case).double(), case.expected, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize(
    "rows", [[(1, 40)] * 5, [(33, 33), (16, 16)], [(4, 20), (9, 9)]], ids=["decode", "prefill", "chunk"]
)
def test_steps_of_one_kind(rows: list[tuple[int, int]]) -> None:
    case = make_case(rows, 16)
    torch.testing.assert_close(run(case).double(), case.expected, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize(("dtype", "step"), [(torch.float16, 2**-10), (torch.bfloat16, 2**-7)])
def test_half_precision_loses_only_the_rounding_of_the_result(dtype: torch.dtype, step: float) -> None:
    case = make_case(MIX, 16, dtype=dtype)
    out = run(case)
    assert out.dtype == dtype
    torch.testing.assert_close(out.double(), case.expected, atol=1e-5, rtol=step)


def test_writes_exactly_the_slots_named() -> None:
    case = make_case(MIX, 8)
    before = case.kv.tensor.clone()
    address = case.kv.address
    run(case)
    for token, slot in enumerate(case.layout.slots.tolist()):
        block, offset = divmod(slot, 8)
        before[LAYER, 0, block, offset], before[LAYER, 1, block, offset] = case.k[token], case.v[token]
    torch.testing.assert_close(case.kv.tensor, before, atol=0, rtol=0, equal_nan=True)
    assert case.kv.address == address


def test_a_block_filled_in_this_very_step_may_be_shared() -> None:
    """Request 0 reads, as its prefix, the block that request 1, after it in the batch, writes in the same step."""
    alone = make_case([(4, 4)], 4)
    keys, values = alone.k, alone.v
    q, k, v = torch.randn(3, 2, 6, HEAD_DIM)
    k, v = k[:, :2], v[:, :2]
    layout = StepLayout(
        query_start=torch.tensor([0, 2, 6], dtype=torch.int32),
        context_lens=torch.tensor([6, 4], dtype=torch.int32),
        block_tables=torch.tensor([[3, 1], [3, 0]], dtype=torch.int32),
        slots=torch.tensor([4, 5, 12, 13, 14, 15]),
        max_query=4,
        max_context=6,
    )
    step = Case(alone.kv, layout, torch.cat([q, alone.q]), torch.cat([k, keys]), torch.cat([v, values]), alone.expected)
    out = run(step).double()
    torch.testing.assert_close(out[2:], alone.expected, atol=1e-5, rtol=1e-5)
    shared = dense(q, torch.cat([keys, k]), torch.cat([values, v]))
    torch.testing.assert_close(out[:2], shared, atol=1e-5, rtol=1e-5)


def test_padding_writes_to_block_0_only_and_harms_nobody() -> None:
    """Two requests of padding and three tokens past the last request, in a step with real neighbours."""
    case = make_case(MIX, 16)
    real, rows, extra = len(case.q), len(MIX), 5
    pad = torch.nn.functional.pad
    layout = StepLayout(
        query_start=torch.cat([case.layout.query_start, torch.tensor([real + 1, real + 2], dtype=torch.int32)]),
        context_lens=pad(case.layout.context_lens, (0, 2)),
        block_tables=pad(case.layout.block_tables, (0, 0, 0, 2)),
        slots=torch.cat([case.layout.slots, torch.arange(extra)]),
        max_query=case.layout.max_query,
        max_context=case.layout.max_context,
    )
    q, k, v = (pad(x, (0, 0, 0, 0, 0, extra), value=torch.nan) for x in (case.q, case.k, case.v))
    untouched = [b for b in range(1, case.kv.num_blocks) if b not in set((case.layout.slots // 16).tolist())]
    before = case.kv.tensor[:, :, untouched].clone()
    out = run(Case(case.kv, layout, q, k, v, case.expected))
    torch.testing.assert_close(out[:real].double(), case.expected, atol=1e-5, rtol=1e-5)
    assert len(out) == real + extra
    assert len(layout.context_lens) == rows + 2
    assert not out[real:].any()
    torch.testing.assert_close(case.kv.tensor[:, :, untouched], before, atol=0, rtol=0, equal_nan=True)
