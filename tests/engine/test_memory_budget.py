"""Sharing out a GPU's memory: whose bytes they are, what the pool gets, and that every way out named really is one."""

from __future__ import annotations

import re
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from pellucid.attention import ReferenceAttention
from pellucid.engine.budget import Budget, Card, Needs, budget
from pellucid.engine.memory import GIB
from pellucid.engine.options import EngineOptions
from pellucid.engine.rehearsal import rehearse
from pellucid.errors import ConfigError
from pellucid.model import load
from pellucid.model.llama import weight_bytes

BLOCK = 2_097_152  # Llama-8B in bfloat16, 16 tokens
CARD = Card("a card", 80 * GIB, GIB // 2)
NEEDS = Needs(weights=15 * GIB, activations=GIB, graphs=GIB // 2)


def shared(card: Card = CARD, needs: Needs = NEEDS, block: int = BLOCK, **options: Any) -> Budget:
    return budget(card, needs, EngineOptions.of("LLM", options), block, 131_072)


def test_the_pool_gets_what_is_allowed_and_not_needed() -> None:
    made = shared(gpu_memory_utilization=0.5)
    assert made.pool.num_blocks == (40 * GIB - NEEDS.total) // BLOCK == 12_032
    assert made.pool.why == "gpu_memory_utilization=0.5"
    assert made.pool.max_model_len == 131_072
    assert made.left == CARD.free - 40 * GIB


@pytest.mark.parametrize(
    ("options", "blocks"),
    [
        ({"num_gpu_blocks_override": 80}, 80),
        ({"kv_cache_tokens": 79 * 16 + 1}, 81),
        ({"kv_cache_memory_bytes": 80 * BLOCK + 5}, 80),
    ],
)
def test_absolute_sizes(options: dict[str, int], blocks: int) -> None:
    made = shared(**options)
    assert (made.pool.num_blocks, made.pool.max_model_len) == (blocks, (blocks - 1) * 16)


def test_an_absolute_size_needs_no_more_than_its_own_bytes_free() -> None:
    """Another process holds half the card: 90 % of it are not free, and a small pool does not need them."""
    crowded = CARD._replace(used=40 * GIB)
    assert shared(crowded, num_gpu_blocks_override=80).pool.num_blocks == 80
    with pytest.raises(ConfigError, match=r"72\.00 GiB, and 40\.00 GiB are free on a card: .*=0\.5 would fit\.$"):
        shared(crowded)


def test_the_lines_say_whose_bytes_they_are() -> None:
    assert shared(gpu_memory_utilization=0.5).lines() == (
        "a card: 80.00 GiB, 0.50 of it in use before this engine, which may take 40.00 and leaves 39.50",
        "the engine takes weights 15.00 GiB, activations 1.00 GiB, graphs 0.50 GiB, KV 23.50 GiB = 12,032 blocks × "
        "2,097,152 bytes",
    )


def test_a_request_too_long_for_what_is_left() -> None:
    with pytest.raises(ConfigError) as caught:
        shared(gpu_memory_utilization=0.25, max_model_len=131_072)
    assert str(caught.value) == (
        "max_model_len=131072 needs 8,193 blocks of 2,097,152 bytes, and gpu_memory_utilization=0.25 of 80.00 GiB "
        "leaves 1,792 beside weights 15.00 GiB, activations 1.00 GiB, graphs 0.50 GiB: 13,423,869,952 bytes are "
        "missing; max_model_len=28656 or gpu_memory_utilization=0.407 would fit."
    )


def test_a_pool_too_large_is_told_in_the_callers_own_unit() -> None:
    with pytest.raises(ConfigError, match=r"take 94\.50 GiB, .* allows 72\.00: .*; kv_cache_tokens=454640 would"):
        shared(kv_cache_tokens=39_935 * 16)
    with pytest.raises(ConfigError, match=r"79\.50 GiB are free on .*: .*; kv_cache_memory_bytes=67645734912 would"):
        shared(kv_cache_memory_bytes=90 * GIB, gpu_memory_utilization=1.0)


def test_a_model_too_large_for_the_card_has_no_way_out_here() -> None:
    with pytest.raises(ConfigError, match=r"leaves 0 beside weights 140\.00 GiB: .*; free them on this card"):
        shared(needs=Needs(140 * GIB))
    with pytest.raises(ConfigError, match=r"even all of that is .* bytes less than the engine needs"):
        shared(CARD._replace(used=70 * GIB))


def test_a_request_longer_than_the_model_is_no_matter_of_memory() -> None:
    with pytest.raises(ConfigError, match="is more than the model's 131072"):
        shared(gpu_memory_utilization=0.2, max_model_len=131_073)


WAY_OUT = re.compile(
    r"(num_gpu_blocks_override|kv_cache_\w+|max_model_len|gpu_memory_utilization)=([\d.]*\d)(?= or | would)"
)
SIZES = ("num_gpu_blocks_override", "kv_cache_tokens", "kv_cache_memory_bytes")


@given(data=st.data())
def test_whatever_is_refused_every_way_out_that_is_named_is_taken(data: st.DataObject) -> None:
    total = data.draw(st.integers(2**20, 200 * GIB), "total")
    card = Card("a card", total, data.draw(st.integers(0, total), "used"))
    needs = Needs(*(data.draw(st.integers(0, total // 2), name) for name in Needs._fields))
    block = data.draw(st.integers(1, max(2, total // 8)), "block")
    options: dict[str, Any] = {
        "block_size": data.draw(st.sampled_from((1, 16, 256))),
        "gpu_memory_utilization": data.draw(st.integers(1, 1000)) / 1000,
        "max_model_len": data.draw(st.none() | st.integers(2, 131_072)),
    }
    if size := data.draw(st.none() | st.sampled_from(SIZES)):
        unit = block if size == "kv_cache_memory_bytes" else 1
        options[size] = data.draw(st.integers(1, 2 * total // block)) * unit
    try:
        made = shared(card, needs, block, **options)
    except ConfigError as refusal:
        for name, value in WAY_OUT.findall(str(refusal)):
            better = options | {name: float(value) if "." in value or (value == "1" and "util" in name) else int(value)}
            _holds(shared(card, needs, block, **better))
    else:
        _holds(made)


def _holds(made: Budget) -> None:
    assert made.needs.total + made.pool.nbytes <= min(made.allowed, made.card.free)
    assert made.left >= 0
    assert made.pool.num_blocks >= 2


def test_the_bytes_of_weights_are_known_before_they_are_read() -> None:
    loaded = load("tiny", kernels="torch")
    assert weight_bytes(loaded.config, torch.float32) == loaded.model.weight_bytes


@pytest.mark.parametrize(("tokens", "rows"), [(5, [5]), (2048, [2048]), (4100, [2048, 2048, 4])])
def test_the_rehearsal_is_one_step_of_all_the_tokens(tokens: int, rows: list[int]) -> None:
    model, seen = load("tiny").model, []

    class Watched(ReferenceAttention):
        def forward(self, layer: int, q: torch.Tensor, k: Any, v: Any, kv: Any, layout: Any) -> torch.Tensor:
            seen.append((len(q), layout.context_lens.tolist(), layout.slots.unique().numel()))
            slots = [block * 16 + at for block, at in _places(layout)]
            assert slots == layout.slots.tolist()
            return super().forward(layer, q, k, v, kv, layout)

    rehearse(model, Watched(), 16, tokens, 3)
    assert seen == [(tokens, rows, tokens)] * model.config.num_layers


def _places(layout: Any) -> list[tuple[int, int]]:
    tables, lengths = layout.block_tables.tolist(), layout.context_lens.tolist()
    return [(table[at // 16], at % 16) for table, length in zip(tables, lengths, strict=True) for at in range(length)]
