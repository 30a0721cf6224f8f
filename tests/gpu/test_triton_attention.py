"""Triton's attention against the reference: fresh numbers, scattered tables, a pool that is NaN where nobody wrote."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
import triton
import triton.language as tl
from near import assert_near
from paged_steps import LAYER, Sizes, Step, check, expected, make_step, pad, verify

from pellucid.attention import KVStorage, attention_backend
from pellucid.attention import triton as triton_attention
from pellucid.attention.triton import LEAST_PART, TILES, TritonAttention, prefill_tile, processors
from pellucid.attention.triton_prefill import find_request
from pellucid.errors import ConfigError
from pellucid.ops import PlainOps
from pellucid.triton_heads import Unscaled, Unturned

ON_GPU = pytest.mark.skipif(not torch.cuda.is_available(), reason="only a GPU can show this")
MIX = [(1, 1), (7, 7), (1, 19), (5, 23), (3, 150), (1, 150)]
"""(tokens computed, context after them): new prompts, chunks of prompts, and decoding."""


@pytest.fixture
def backend() -> TritonAttention:
    return TritonAttention()


@pytest.fixture(autouse=True)
def _poisoned_outputs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever is not written is NaN, or no number of anything: in outputs, in plans, and between parts."""
    empty = torch.empty

    def poisoned(*shape: Any, **how: Any) -> torch.Tensor:
        made = empty(*shape, **how)
        return made.fill_(torch.nan if made.is_floating_point() else 2**30)

    monkeypatch.setattr(torch, "empty", poisoned)


@pytest.mark.parametrize(
    ("heads", "kv_heads"), [(2, 2), (4, 2), (9, 3), (8, 2), (5, 1), (6, 1), (7, 1), (8, 1), (32, 1)]
)
def test_query_heads_share_their_kv_head(
    backend: TritonAttention,
    dtype: torch.dtype,
    device: torch.device,
    draw: torch.Generator,
    heads: int,
    kv_heads: int,
) -> None:
    check(backend, make_step(MIX, Sizes(heads, kv_heads), dtype, device, draw))


@pytest.mark.parametrize("sizes", [Sizes(9, 3, 64), Sizes(16, 8, 128), Sizes(32, 8, 128), Sizes(4, 2, 16)], ids=str)
def test_sizes_of_models(
    backend: TritonAttention, dtype: torch.dtype, device: torch.device, draw: torch.Generator, sizes: Sizes
) -> None:
    check(backend, make_step([(1, 77), (9, 40)], sizes, dtype, device, draw))


@pytest.mark.parametrize("block_size", [1, 8, 16, 32, 128, 256])
def test_sizes_of_blocks(
    backend: TritonAttention, dtype: torch.dtype, device: torch.device, draw: torch.Generator, block_size: int
) -> None:
    check(backend, make_step([(1, 19), (7, 7), (30, 290), (1, 290)], Sizes(block_size=block_size), dtype, device, draw))


@pytest.mark.parametrize("dim", [8, 48, 96, 256])
def test_sizes_of_heads(backend: TritonAttention, device: torch.device, draw: torch.Generator, dim: int) -> None:
    check(backend, make_step(MIX, Sizes(4, 2, dim), torch.float32, device, draw))


@pytest.mark.parametrize(
    ("group", "kv_heads", "dim", "block_size", "left"),
    [
        (3, 2, 24, 4, "factors, bias and norms"),
        (2, 1, 128, 16, "factors and norms"),
        (17, 1, 20, 16, "bias"),
        (1, 2, 64, 16, "factors"),
        (5, 1, 256, 32, "bias and norms"),
        (3, 3, 64, 16, ""),
    ],
)
def test_heads_that_it_turns_itself(
    backend: TritonAttention, dtype: torch.dtype, device: torch.device, draw: torch.Generator, group: int,
    kv_heads: int, dim: int, block_size: int, left: str,
) -> None:  # fmt: skip
    """With all that may be left to do before: as if it had been done, the newest K and V in their slots, and nothing
    else written; padding becomes zeros."""
    contexts = [1, 16, 17, 33, 64, 65, 97, 200]
    sizes = Sizes(group * kv_heads, kv_heads, dim, block_size)
    step = pad(make_step([(1, context) for context in contexts], sizes, dtype, device, draw), 2, 2, one_token_each=True)
    packed = torch.cat([heads.flatten(1) for heads in (step.q, step.k, step.v)], 1)
    x = torch.randn(len(packed), 40, generator=draw).to(device, dtype)
    bias, norms = torch.randn(packed[0].shape, generator=draw), torch.randn(2, dim, generator=draw)
    bias, norms = bias.to(device, dtype), norms.to(device, dtype)
    angles = torch.rand(len(packed), dim // 2, generator=draw).to(device) * 1000
    unturned = Unturned(
        packed, angles.cos(), angles.sin(), tuple(norms) if "norms" in left else None, 1e-5,
        Unscaled(x, 1e-5) if "factors" in left else None, bias if "bias" in left else None,
    )  # fmt: skip
    done = Step(step.kv, step.layout, *(heads.to(dtype) for heads in finished(unturned, group * kv_heads, kv_heads)))
    right, _, pool = expected(done)

    q, layout = packed[:, : group * kv_heads * dim].unflatten(1, (-1, dim)), replace(step.layout, apart=True)
    out = torch.empty(q.shape, dtype=dtype, device=device)
    before = step.kv.tensor.clone()
    backend.attend(LAYER, q, step.kv, layout, out, backend.plan(q, step.kv, layout, turns=True), unturned)
    assert_near(out[: len(contexts)], right[: len(contexts)].double(), units=8)
    assert not out[len(contexts) :].any()
    written = layout.slots[: len(contexts)]
    slots, exact = step.kv.tensor.flatten(2, 3), pool.tensor.flatten(2, 3)
    assert_near(slots[LAYER][:, written], exact[LAYER][:, written].double())
    before.flatten(2, 3)[LAYER][:, written] = slots[LAYER][:, written]
    torch.testing.assert_close(step.kv.tensor, before, rtol=0, atol=0, equal_nan=True)


def finished(unturned: Unturned, heads: int, kv_heads: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """q, k and v as `Unturned` says, in plain torch and float64."""
    packed, cos, sin, norms, eps, unscaled, bias = unturned
    plain, x = PlainOps(torch.float64), packed.double()
    if unscaled is not None:
        x = x * (unscaled.x.double().square().mean(1, keepdim=True) + unscaled.eps).rsqrt()
    if bias is not None:
        x = x + bias.double()
    q, k, v = x.unflatten(1, (heads + 2 * kv_heads, -1)).split((heads, kv_heads, kv_heads), 1)
    if norms is not None:
        q, k = plain.rms_norm(q, norms[0].double(), eps), plain.rms_norm(k, norms[1].double(), eps)
    q, k = q.contiguous(), k.contiguous()
    for turning in (q, k):
        plain.rotate(turning, cos.double(), sin.double())
    return q, k, v


@pytest.mark.parametrize(("width", "requests"), [(width, least) for width in TILES for least in TILES[width]])
@pytest.mark.parametrize("block_size", [8, 16, 64])
def test_tiles_for_any_number_of_requests(
    backend: TritonAttention,
    device: torch.device,
    draw: torch.Generator,
    monkeypatch: pytest.MonkeyPatch,
    block_size: int,
    width: int,
    requests: int,
) -> None:
    """Each of them, in a step of five."""
    asked: list[int] = []

    def tile_of(rows: int, *_: object) -> triton_attention.Tile:
        asked.append(rows)
        return TILES[width][requests]

    monkeypatch.setattr(triton_attention, "decode_tile", tile_of)
    rows, sizes = [(1, context) for context in (1, 16, 33, 260, 700)], Sizes(4, 2, width // 2, block_size)
    check(backend, make_step(rows, sizes, torch.float16, device, draw))
    assert set(asked) == {5}


def test_decoding_at_every_edge_of_blocks_tiles_and_parts(
    backend: TritonAttention, dtype: torch.dtype, device: torch.device, draw: torch.Generator
) -> None:
    edges = [e + d for e in (8, 16, 32, LEAST_PART, 2 * LEAST_PART, 5 * LEAST_PART) for d in (-1, 0, 1)]
    rows = [(1, context) for context in [1, 2, *edges]]
    check(backend, make_step(rows, Sizes(3, 1, block_size=8), dtype, device, draw))


def test_few_requests_with_long_contexts(
    backend: TritonAttention, dtype: torch.dtype, device: torch.device, draw: torch.Generator
) -> None:
    """Many parts of one context, then other numbers of them, with what the steps before left behind."""
    for rows in ([(1, 1100)], [(1, 700), (1, 90)], [(1, 1)], [(1, 1100), (2, 80)]):
        check(backend, make_step(rows, Sizes(4, 1), dtype, device, draw))


@pytest.mark.parametrize("count", [2, 20, 21, 22, 65])
def test_prompts_and_their_chunks_at_every_edge_of_tiles(
    backend: TritonAttention, dtype: torch.dtype, device: torch.device, draw: torch.Generator, count: int
) -> None:
    rows = [(count, count), (count, count + 1), (count, count + 64), (count, count + 100)]
    check(backend, make_step(rows, Sizes(3, 1), dtype, device, draw))


@triton.jit
def locate_kernel(found, tiles, query_start, requests, TOKENS: tl.constexpr):
    place = tl.program_id(0)
    tl.store(found + place, find_request(query_start, tl.load(tiles + place), requests, TOKENS, 256))


def test_tiles_find_their_request_among_many(device: torch.device, draw: torch.Generator) -> None:
    counts, size = torch.randint(1, 40, (600,), generator=draw), 16
    starts = F.pad(counts.cumsum(0), (1, 0)).int()
    rows = torch.tensor([0, 1, 254, 255, 256, 257, 511, 512, 598, 599]).repeat_interleave(2)
    tiles = starts[rows] // size + rows
    tiles[1::2] += (counts[rows[1::2]] - 1) // size  # the last that each needs, after the first
    tiles, rows = F.pad(tiles, (0, 1), value=int(starts[-1]) // size + 600), F.pad(rows, (0, 1), value=600)
    found = torch.full_like(tiles, -1).to(device)
    locate_kernel[(len(tiles),)](found, tiles.to(device), starts.to(device), 600, TOKENS=size)
    assert found.tolist() == rows.tolist()


def test_large_tiles(backend: TritonAttention, dtype: torch.dtype, device: torch.device, draw: torch.Generator) -> None:
    tokens = 16 * processors(device) + 40
    assert prefill_tile(8 * tokens, 4, 16, dtype, device) != prefill_tile(8, 4, 16, dtype, device)
    check(backend, make_step([(1, 90), (tokens, tokens + 30), (60, 60)], Sizes(8, 2), dtype, device, draw))


def test_bfloat16(backend: TritonAttention, device: torch.device, draw: torch.Generator) -> None:
    check(backend, make_step(MIX, Sizes(), torch.bfloat16, device, draw))


@pytest.mark.parametrize(("requests", "tokens"), [(3, 0), (0, 3), (2, 70)])
def test_padding_of_a_mixed_step_becomes_zeros(
    backend: TritonAttention,
    dtype: torch.dtype,
    device: torch.device,
    draw: torch.Generator,
    requests: int,
    tokens: int,
) -> None:
    step = pad(make_step(MIX, Sizes(), dtype, device, draw), requests, tokens)
    out = check(backend, step)
    assert not out[len(out) - tokens :].any()


def test_padding_of_a_step_of_decoding_becomes_zeros(
    backend: TritonAttention, device: torch.device, draw: torch.Generator
) -> None:
    step = make_step([(1, 5), (1, 300), (1, 64)], Sizes(), torch.float32, device, draw)
    out = check(backend, pad(step, 5, 5, one_token_each=True))
    assert not out[3:].any()


def test_max_query_is_an_upper_bound(backend: TritonAttention, device: torch.device, draw: torch.Generator) -> None:
    step = make_step([(1, 300), (1, 64)], Sizes(), torch.float32, device, draw)
    step.layout = replace(step.layout, max_query=64)
    check(backend, step)


def test_a_block_filled_in_this_very_step_may_be_shared(
    backend: TritonAttention, dtype: torch.dtype, device: torch.device, draw: torch.Generator
) -> None:
    """Requests 0 and 1 read, as their prefix, the block that request 2, after them, writes in the same step."""
    step = make_step([(2, 18), (1, 17), (16, 16)], Sizes(), dtype, device, draw)
    step.layout.block_tables[:2, 0] = step.layout.block_tables[2, 0]
    check(backend, step)


def test_slices_of_a_packed_product(backend: TritonAttention, device: torch.device, draw: torch.Generator) -> None:
    """q, k and v are slices of one tensor, and the tables of a wider one."""
    step = make_step(MIX, Sizes(), torch.float32, device, draw)
    width = step.layout.block_tables.shape[1]
    layout = replace(step.layout, block_tables=F.pad(step.layout.block_tables, (0, 9), value=-1)[:, :width])
    q, k, v = torch.cat((step.q, step.k, step.v), dim=1).split((6, 2, 2), dim=1)
    check(backend, Step(step.kv, layout, q, k, v))


def test_an_output_of_any_strides(backend: TritonAttention, device: torch.device, draw: torch.Generator) -> None:
    step = make_step(MIX, Sizes(), torch.float32, device, draw)
    right, size, _ = expected(step)
    wide = torch.full((len(right), 8, 20), torch.nan, device=device)
    plan = backend.plan(step.q, step.kv, step.layout)
    backend.write(LAYER, step.k, step.v, step.kv, step.layout)
    backend.attend(LAYER, step.q, step.kv, step.layout, wide[:, 1:7, 2:18], plan)
    verify(wide[:, 1:7, 2:18], right, size)
    assert wide.isnan().sum() == wide.numel() - right.numel()


def test_large_scores_overflow_nowhere(backend: TritonAttention, device: torch.device, draw: torch.Generator) -> None:
    """Scores of ten thousands: one key has all the weight. What comes out is never larger than the largest value."""
    step = make_step(MIX, Sizes(), torch.float32, device, draw)
    out = backend.forward(LAYER, step.q * 1e4, step.k, step.v, step.kv, step.layout)
    assert out.abs().max() <= step.kv.tensor[LAYER, 1].nan_to_num().abs().max() * (1 + 1e-5)


def test_by_name(device: torch.device) -> None:
    assert isinstance(attention_backend("triton", device), TritonAttention)
    assert isinstance(attention_backend("auto", device), TritonAttention) == (device.type == "cuda")


def test_sizes_without_a_kernel_are_refused(backend: TritonAttention, device: torch.device) -> None:
    with pytest.raises(ConfigError, match="up to 256 numbers, not 512"):
        backend.check(16, 512, 2, 2, torch.float16, device)
    with pytest.raises(ConfigError, match="up to 256 numbers, not 512"):
        attention_backend("triton", device, head_dim=512)
    with pytest.raises(ConfigError, match="up to 64 query heads a KV head, not 71"):
        backend.check(16, 64, 71, 1, torch.float16, device)


@ON_GPU
def test_a_recorded_step_is_played_for_other_requests(
    backend: TritonAttention, dtype: torch.dtype, device: torch.device, draw: torch.Generator
) -> None:
    first = make_step([(1, 900), (1, 40), (1, 16)], Sizes(), dtype, device, draw)
    out = torch.empty_like(first.q)

    def play() -> None:
        plan = backend.plan(first.q, first.kv, first.layout)
        backend.write(LAYER, first.k, first.v, first.kv, first.layout)
        backend.attend(LAYER, first.q, first.kv, first.layout, out, plan)

    play()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        play()
    order = torch.tensor([2, 0, 1], device=device)
    for tensor in (first.q, first.k, first.v, first.layout.context_lens, first.layout.block_tables, first.layout.slots):
        tensor.copy_(tensor[order].clone())
    right, size, _ = expected(first)
    for _ in range(3):
        out.fill_(torch.nan)
        graph.replay()
        verify(out, right, size)


@ON_GPU
def test_a_pool_of_more_than_2_to_31_numbers(
    backend: TritonAttention, device: torch.device, draw: torch.Generator
) -> None:
    step = make_step([(1, 300), (40, 140), (1, 16)], Sizes(8, 2, 128), torch.bfloat16, device, draw)
    right, size, _ = expected(step)
    small = step.kv.tensor[LAYER]
    ahead = 2**31 // small[0, 0].numel()
    large = KVStorage(1, ahead + small.shape[1], 16, 2, 128, torch.bfloat16, device)
    large.tensor[0, :, ahead:] = small
    layout = replace(step.layout, block_tables=step.layout.block_tables + ahead, slots=step.layout.slots + ahead * 16)
    verify(backend.forward(0, step.q, step.k, step.v, large, layout), right, size)
