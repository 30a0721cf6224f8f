"""Sizing the pool: the default, the three ways to ask, and what is refused with numbers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pellucid.engine import memory
from pellucid.engine.memory import GIB, pool_size, process_memory
from pellucid.engine.options import EngineOptions
from pellucid.errors import ConfigError

BLOCK = 737_280  # smollm2-135m in float32, 16 tokens


def size(monkeypatch: pytest.MonkeyPatch, gib: float, **options: Any) -> memory.PoolSize:
    monkeypatch.setattr(memory, "process_memory", lambda: int(gib * GIB))
    return pool_size(EngineOptions.of("LLM", options), BLOCK, 8192)


def test_the_default_is_a_gibibyte_or_a_tenth_of_memory_if_that_is_less(monkeypatch: pytest.MonkeyPatch) -> None:
    assert size(monkeypatch, 64).num_blocks == GIB // BLOCK
    assert size(monkeypatch, 4).num_blocks == int(0.4 * GIB) // BLOCK


def test_utilization_is_only_an_upper_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    assert size(monkeypatch, 64, gpu_memory_utilization=0.9).num_blocks == GIB // BLOCK
    assert size(monkeypatch, 64, gpu_memory_utilization=0.01).num_blocks == int(0.64 * GIB) // BLOCK


def test_blocks_tokens_and_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    assert size(monkeypatch, 64, num_gpu_blocks_override=80).num_blocks == 80
    assert size(monkeypatch, 64, kv_cache_tokens=79 * 16).num_blocks == 80
    assert size(monkeypatch, 64, kv_cache_tokens=79 * 16 + 1).num_blocks == 81
    assert size(monkeypatch, 64, kv_cache_memory_bytes=80 * BLOCK + 5).num_blocks == 80


@pytest.mark.parametrize("options", [{"num_gpu_blocks_override": 5000}, {"kv_cache_memory_bytes": 4 * GIB}])
def test_more_than_there_is_names_what_there_is(monkeypatch: pytest.MonkeyPatch, options: dict[str, int]) -> None:
    with pytest.raises(ConfigError, match=rf"of 2\.00 GiB allows {int(2 * GIB * 0.9) // BLOCK} blocks"):
        size(monkeypatch, 2, **options)


def test_a_pool_of_the_reserved_block_alone_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match=r"at least 2 blocks \(1,474,560 bytes\)"):
        size(monkeypatch, 64, kv_cache_memory_bytes=BLOCK)


@pytest.mark.parametrize(
    ("blocks", "asked", "longest"), [(80, None, 79 * 16), (80, 1264, 1264), (1000, None, 8192), (1000, 512, 512)]
)
def test_the_longest_request(monkeypatch: pytest.MonkeyPatch, blocks: int, asked: int | None, longest: int) -> None:
    assert size(monkeypatch, 64, num_gpu_blocks_override=blocks, max_model_len=asked).max_model_len == longest


def test_too_long_for_the_pool_names_the_largest_that_fits(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match=r"max_model_len=1265 needs 81 blocks.*80 \(79 usable\).*fits is 1264"):
        size(monkeypatch, 64, num_gpu_blocks_override=80, max_model_len=1265)


def test_a_control_groups_limit_counts(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    machine = process_memory()
    limit = tmp_path / "memory.max"
    monkeypatch.setattr(memory, "CGROUP_LIMITS", (str(limit), str(tmp_path / "absent")))
    limit.write_text("max\n")
    assert process_memory() >= machine
    limit.write_text("123456789\n")
    assert process_memory() == 123_456_789
