"""Every backend against dense attention in float64, on a pool that is NaN where nobody has written."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from steps import LAYER, MIX, Case, dense, make_case

from guarded_memory import guarded_memory
from pellucid.attention import AttentionBackend, CompiledAttention, ReferenceAttention, StepLayout
from pellucid.native import native

UNIT = {torch.float32: 2.0**-24, torch.float16: 2.0**-11, torch.bfloat16: 2.0**-8}
"""What rounding to the nearest number of a type changes, at most, as a share of the number."""


@pytest.fixture(params=[ReferenceAttention, CompiledAttention], ids=["reference", "compiled"])
def backend(request: pytest.FixtureRequest) -> AttentionBackend:
    if request.param is CompiledAttention and native().kernels is None:
        pytest.skip(native().why)
    return request.param()


@pytest.fixture(autouse=True)
def _guarded() -> Iterator[None]:
    with guarded_memory():
        yield


def check(backend: AttentionBackend, case: Case) -> torch.Tensor:
    """Run the step; its result is the dense one, but for rounding.

    Sums in float32 are good to 1e-5 of the values here. The compiled kernel multiplies values with weights
    that are bfloat16 if they are, and divides by the sum of just those: two roundings.
    """
    out = backend.forward(LAYER, case.q, case.k, case.v, case.kv, case.layout)
    assert out.dtype == case.q.dtype
    real = out[: len(case.expected)].double()
    allowed = UNIT[out.dtype] * case.expected.abs() + 1e-5 * case.size
    if isinstance(backend, CompiledAttention) and out.dtype is torch.bfloat16:
        allowed = allowed + 2 * UNIT[out.dtype] * case.size
    assert (~((real - case.expected).abs() <= allowed)).sum() == 0
    return out


DTYPES = pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["float32", "bfloat16"])


def has(backend: AttentionBackend, dtype: torch.dtype, head_dim: int = 8) -> None:
    """Skip the test where ``backend`` has no kernel for this type."""
    missing = CompiledAttention.missing(dtype, torch.device("cpu"), head_dim)
    if isinstance(backend, CompiledAttention) and missing:
        pytest.skip(missing)


@DTYPES
@pytest.mark.parametrize("block_size", [2**i for i in range(9)])
def test_mixed_step(backend: AttentionBackend, block_size: int, dtype: torch.dtype) -> None:
    has(backend, dtype)
    check(backend, make_case(MIX, block_size, dtype=dtype, seed=block_size))


@pytest.mark.parametrize("block_size", [1, 16])
def test_float16_in_the_reference(block_size: int) -> None:
    check(ReferenceAttention(), make_case(MIX, block_size, dtype=torch.float16))


@DTYPES
@pytest.mark.parametrize(("heads", "kv_heads"), [(1, 1), (4, 4), (9, 3), (8, 2), (5, 1), (12, 2), (7, 1), (16, 2)])
def test_query_heads_share_their_kv_head(
    backend: AttentionBackend, heads: int, kv_heads: int, dtype: torch.dtype
) -> None:
    has(backend, dtype)
    check(backend, make_case(MIX, 16, heads, kv_heads, dtype))


@DTYPES
@pytest.mark.parametrize("head_dim", [2, 6, 8, 16, 18, 32, 48, 64, 80, 96, 128, 144, 256])
def test_sizes_of_heads(backend: AttentionBackend, head_dim: int, dtype: torch.dtype) -> None:
    has(backend, dtype, head_dim)
    check(backend, make_case(MIX, 16, 4, 2, dtype, head_dim=head_dim))


@DTYPES
@pytest.mark.parametrize(
    "rows", [[(1, 40)] * 5, [(33, 33), (16, 16)], [(4, 20), (9, 9)]], ids=["decode", "prefill", "chunk"]
)
def test_steps_of_one_kind(backend: AttentionBackend, rows: list[tuple[int, int]], dtype: torch.dtype) -> None:
    has(backend, dtype)
    check(backend, make_case(rows, 16, dtype=dtype))


@pytest.mark.parametrize("context", [*range(1, 20), 31, 32, 33, 47, 48, 49, 63, 64, 65, 127, 128, 129, 192, 193])
def test_every_length_of_context(backend: AttentionBackend, context: int) -> None:
    """Keys go through in groups: around each edge of a group, in decoding and in prefill."""
    dtype = torch.bfloat16 if native().multiplies_bfloat16 else torch.float32
    for own in (dtype, torch.float32):
        check(backend, make_case([(1, context), (min(context, 18), context)], 8, 3, 1, own, head_dim=16))


def test_large_scores_overflow_nowhere(backend: AttentionBackend) -> None:
    """Scores of ten thousands: one key has all the weight. What comes out is never larger than the largest value."""
    case = make_case(MIX, 16, seed=3)
    out = backend.forward(LAYER, case.q * 1e4, case.k, case.v, case.kv, case.layout)
    assert out.abs().max() <= case.kv.tensor[LAYER, 1].nan_to_num().abs().max() * (1 + 1e-5)


def test_slices_of_a_packed_product(backend: AttentionBackend) -> None:
    """q, k and v are slices of one tensor, and the tables of a wider one."""
    case, same = make_case(MIX, 8, seed=2), make_case(MIX, 8, seed=2)
    q, k, v = torch.cat((case.q, case.k, case.v), dim=1).split((6, 2, 2), dim=1)
    width = case.layout.block_tables.shape[1]
    layout = replace(case.layout, block_tables=F.pad(case.layout.block_tables, (0, 9), value=-1)[:, :width])
    out = backend.forward(LAYER, q, k, v, case.kv, layout)
    assert torch.equal(out, backend.forward(LAYER, same.q, same.k, same.v, same.kv, same.layout))


def test_writes_exactly_the_slots_named(backend: AttentionBackend) -> None:
    case = make_case(MIX, 8)
    before = case.kv.tensor.clone()
    address = case.kv.address
    check(backend, case)
    for token, slot in enumerate(case.layout.slots.tolist()):
        block, offset = divmod(slot, 8)
        before[LAYER, 0, block, offset], before[LAYER, 1, block, offset] = case.k[token], case.v[token]
    torch.testing.assert_close(case.kv.tensor, before, atol=0, rtol=0, equal_nan=True)
    assert case.kv.address == address


@DTYPES
def test_a_block_filled_in_this_very_step_may_be_shared(backend: AttentionBackend, dtype: torch.dtype) -> None:
    """Request 0 reads, as its prefix, the block that request 1, after it in the batch, writes in the same step."""
    has(backend, dtype)
    alone = make_case([(4, 4)], 4, dtype=dtype)
    q, k, v = torch.randn(3, 2, 6, 8).to(dtype)
    k, v = k[:, :2], v[:, :2]
    layout = StepLayout(
        query_start=torch.tensor([0, 2, 6], dtype=torch.int32),
        context_lens=torch.tensor([6, 4], dtype=torch.int32),
        block_tables=torch.tensor([[3, 1], [3, 0]], dtype=torch.int32),
        slots=torch.tensor([4, 5, 12, 13, 14, 15]),
        max_query=4,
    )
    keys, values = torch.cat((alone.k, k)), torch.cat((alone.v, v))
    step = Case(
        kv=alone.kv,
        layout=layout,
        q=torch.cat((q, alone.q)),
        k=torch.cat((k, alone.k)),
        v=torch.cat((v, alone.v)),
        expected=torch.cat((dense(q, keys, values), alone.expected)),
        size=torch.cat((dense(q, keys, values.abs()), alone.size)),
    )
    check(backend, step)


@DTYPES
def test_padding_writes_to_block_0_only_and_harms_nobody(backend: AttentionBackend, dtype: torch.dtype) -> None:
    """Two requests of padding and three tokens past the last request, in a step with real neighbours."""
    has(backend, dtype)
    case = make_case(MIX, 16, dtype=dtype)
    real, extra = len(case.q), 5
    layout = StepLayout(
        query_start=torch.cat([case.layout.query_start, torch.tensor([real + 1, real + 2], dtype=torch.int32)]),
        context_lens=F.pad(case.layout.context_lens, (0, 2)),
        block_tables=F.pad(case.layout.block_tables, (0, 0, 0, 2)),
        slots=torch.cat([case.layout.slots, torch.arange(extra)]),
        max_query=case.layout.max_query,
    )
    q, k, v = (F.pad(x, (0, 0, 0, 0, 0, extra), value=torch.nan) for x in (case.q, case.k, case.v))
    untouched = [b for b in range(1, case.kv.num_blocks) if b not in set((case.layout.slots // 16).tolist())]
    before = case.kv.tensor[:, :, untouched].clone()
    out = check(backend, Case(case.kv, layout, q, k, v, case.expected, case.size))
    assert len(out) == real + extra
    assert not out[real:].any()
    torch.testing.assert_close(case.kv.tensor[:, :, untouched], before, atol=0, rtol=0, equal_nan=True)
