"""Tiles where there is less shared memory than where they were found: they fit and compute the same, or are refused."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from itertools import product as product_of
from pathlib import Path
from typing import Any

import pytest
import torch
from near import assert_near, random
from paged_steps import Sizes, check, make_step

from pellucid.attention import triton as attention
from pellucid.attention.triton import (
    BOUNDS,
    MOST_GROUP,
    TILES,
    TURNING_TILES,
    TritonAttention,
    decode_tile,
    prefill_tile,
)
from pellucid.errors import KernelError
from pellucid.ops import triton_matmul, triton_tiles, triton_vocabulary
from pellucid.ops.triton_matmul import product
from pellucid.ops.triton_matrix import TritonLinear, most_counters
from pellucid.ops.triton_tiles import LEAST_COLUMNS, NARROW, ROWS, TUNED, WIDE, fitted
from pellucid.ops.triton_vocabulary import PARTS, part_for
from pellucid.triton_bulk import ROOM, copyable

KIB = 1024
ADA, AMPERE, HOPPER = 99 * KIB, 163 * KIB, 227 * KIB
LIMITS = (ADA, AMPERE, HOPPER)
SIZES = (16, 64, 128, 576, 896, 960, 1024, 1536, 2048, 2560, 3072, 4096, 4864, 8192, 12288, 14336)
PROGRAM = Path(__file__).with_name("cross_compiled.py")
TYPES = (torch.float32, torch.float16, torch.bfloat16)


def products() -> list[tuple[triton_tiles.Tile, int, int]]:
    """(tile, rows, inputs) of the table, and of the rules for any other matrix."""
    shapes = {(outputs, inputs, rows) for outputs in (*SIZES, 49152) for inputs in SIZES for rows in ROWS} | set(TUNED)
    tiles = [(triton_tiles.tile(*shape), shape[2], shape[1]) for shape in sorted(shapes)]
    return [(tile, tile.rows or rows, inputs) for tile, rows, inputs in tiles if tile is not None]


def test_many_rows_have_a_tile_only_if_it_was_found_by_trying() -> None:
    shape = next((outputs, inputs) for outputs, inputs, rows in TUNED if rows == WIDE[0])
    few, many = (triton_tiles.tile(*shape, rows) for rows in WIDE)
    assert few != many
    found = [triton_tiles.tile(*shape, rows) for rows in range(NARROW + 1, WIDE[1] + 100)]
    assert found == [few] * (WIDE[0] - NARROW) + [many] * (WIDE[1] - WIDE[0]) + [None] * 99
    assert triton_tiles.tile(1000, 1000, 128) is None
    wide = [tile for (*_, rows), tile in TUNED.items() if rows in WIDE]
    assert all(tile and 0 < tile.rows <= ROOM and tile.shares == 1 for tile in wide)


def test_a_tile_in_bulk_is_for_what_can_be_copied_so(device: torch.device, monkeypatch: pytest.MonkeyPatch) -> None:
    outputs, inputs, _ = next(shape for shape, tile in TUNED.items() if shape[2] == WIDE[0] and tile and tile.bulk)
    weight = torch.empty((outputs, inputs), dtype=torch.bfloat16, device=device)
    best = triton_tiles.tile_for(weight, 128)
    assert best is not None
    assert best.bulk
    assert triton_tiles.tile_for(torch.empty((outputs, inputs), device=device), 128) is None  # float32
    odd = torch.empty(outputs * inputs + 1, dtype=torch.bfloat16, device=device)[1:].view(outputs, inputs)
    assert triton_tiles.tile_for(odd, 128) is None
    monkeypatch.setattr(triton_tiles, "copies_in_bulk", lambda device: False)
    assert triton_tiles.tile_for(weight, 128) is None


def test_what_can_be_copied_begins_its_rows_at_multiples_of_16_bytes() -> None:
    for dtype, step in ((torch.bfloat16, 8), (torch.float32, 4)):
        numbers = torch.empty(1000, dtype=dtype)
        assert copyable(numbers[: 10 * step].view(5, 2 * step))
        assert copyable(numbers[: 40 * step].view(5, 8 * step)[:, step : 3 * step])
        assert not copyable(numbers[1 : 10 * step + 1].view(5, 2 * step))
        assert not copyable(numbers[: 5 * (step + 1)].view(5, step + 1)[:, :step])
        assert not copyable(numbers[: 4 * step * step].view(4 * step, step).T)


def test_counters_are_enough() -> None:
    """For every tile whose inputs are shared out, at the most rows that it is chosen for."""
    shared = [(shape, tile) for shape, tile in TUNED.items() if tile and tile.shares > 1]
    assert shared
    for (outputs, inputs, rows), tile in shared:
        programs = -(-outputs // tile.columns) * -(-rows // (tile.rows or rows))
        assert programs <= most_counters(TritonLinear(torch.empty((outputs, inputs), device="meta"), None))
        assert inputs % (16 * tile.shares) == 0
    narrowest = TritonLinear(torch.empty((64, 16), device="meta"), None)
    assert most_counters(narrowest) == 64 // LEAST_COLUMNS * NARROW // ROWS[1]


@pytest.mark.parametrize("limit", LIMITS)
def test_every_product_fits(limit: int) -> None:
    found = products()
    assert len(found) > len(TUNED)
    for tile, rows, inputs in found:
        for dtype in TYPES:
            small = fitted(tile, rows, inputs, dtype, limit)
            assert triton_tiles.shared_bytes(small, rows, inputs, dtype.itemsize) <= limit
            kept = ["columns", "shares", "late", "rows"]
            assert [getattr(small, name) for name in kept] == [getattr(tile, name) for name in kept]
            if limit == HOPPER and dtype.itemsize == 2:
                assert small == tile
            if triton_tiles.shared_bytes(tile, rows, inputs, dtype.itemsize) <= limit:
                assert small == tile


@pytest.mark.parametrize("limit", LIMITS)
def test_attention_fits(limit: int, device: torch.device, monkeypatch: pytest.MonkeyPatch) -> None:
    """All but that of float32 with more than 16 query heads a KV head, of more than 128 numbers."""

    def tiles(group: int, dim: int, dtype: torch.dtype) -> list[attention.Tile]:
        prefill = [prefill_tile(queries, group, dim, dtype, device) for queries in (1, 10**9)]
        ways = product_of(BOUNDS, (False, True))
        return prefill + [decode_tile(requests, group, dim, dtype, device, turns) for requests, turns in ways]

    for dtype in TYPES:
        for dim in (16, 32, 64, 128, 256):
            for group in (1, 3, 8, 16, 17, MOST_GROUP):
                if limit < HOPPER and dtype is torch.float32 and dim > 128 and group > 16:
                    continue
                monkeypatch.setattr(attention, "shared_memory", lambda _: HOPPER)
                best = tiles(group, dim, dtype)
                monkeypatch.setattr(attention, "shared_memory", lambda _: limit)
                for tile, small in zip(best, tiles(group, dim, dtype), strict=True):
                    assert attention.shared_bytes(small, dim, dtype.itemsize) <= limit
                    assert small.rows >= group
                    if attention.shared_bytes(tile, dim, dtype.itemsize) <= limit:
                        assert small == tile


def found_best(requests: int, group: int, dim: int, dtype: torch.dtype, turns: bool) -> attention.Tile:
    """What is written for it, looked up in the plainest way."""
    width = dim * dtype.itemsize
    if group > 16 or width > 256:
        return attention.Tile(max(16, group), keys=16, warps=4, stages=3, programs=4)
    table = TURNING_TILES if turns else TILES
    tiles = table[128] if width <= 128 else table[256]
    best = tiles[1]
    for least, tile in sorted(tiles.items()):
        if least <= requests:
            best = tile
    return best


def test_on_an_h200_attention_is_as_it_was_found_there(device: torch.device, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attention, "shared_memory", lambda _: HOPPER)
    for dtype in TYPES:
        for dim in (16, 64, 128) if dtype is torch.float32 else (16, 64, 128, 256):
            for group in (1, 3, 8, MOST_GROUP):
                tile = prefill_tile(10**9, group, dim, dtype, device)
                assert tile[:2] == ((64, 32) if dim * dtype.itemsize > 256 else (128, 64))
                for requests in {max(least - below, 1) for least in BOUNDS for below in (0, 1)}:
                    for turns in (False, True):
                        best = found_best(requests, group, dim, dtype, turns)
                        assert decode_tile(requests, group, dim, dtype, device, turns) == best


def test_attention_that_cannot_fit_is_refused(device: torch.device, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attention, "shared_memory", lambda _: ADA)
    backend = TritonAttention()
    sentence = r"64 query heads a KV head, of 256 numbers of 32 bits, takes [\d,]+ bytes .* 101,376 at most: choose att"
    with pytest.raises(KernelError, match=sentence):
        backend.check(16, 256, 64, 1, torch.float32, device)
    backend.check(16, 256, 64, 1, torch.bfloat16, device)
    backend.check(16, 256, 16, 1, torch.float32, device)


@pytest.mark.parametrize(("rows", "limit"), [(16, 6 * KIB), (64, 9 * KIB)])
def test_products_in_the_smallest_tiles(
    rows: int, limit: int, dtype: torch.dtype, draw: torch.Generator, device: torch.device,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    chosen: list[triton_tiles.Tile] = []

    def watched(*arguments: Any) -> triton_tiles.Tile:
        chosen.append(fitted(*arguments))
        return chosen[-1]

    monkeypatch.setattr(triton_matmul, "fitted", watched)
    monkeypatch.setattr(triton_matmul, "shared_memory", lambda _: limit)
    monkeypatch.setitem(TUNED, (35, 200, 64), triton_tiles.Tile(32, 64))
    x, weight = random((rows - 1, 200), draw, dtype, device), random((35, 200), draw, dtype, device) / 16
    out = torch.empty((rows - 1, 35), dtype=dtype, device=device)
    product(x, weight, out)
    assert_near(out, x.double() @ weight.double().T)
    assert chosen[0].stages == 2
    assert chosen[0].first < 128


@pytest.mark.parametrize("limit", LIMITS)
def test_a_vocabulary_in_smaller_parts(
    limit: int, draw: torch.Generator, device: torch.device, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(triton_vocabulary, "shared_memory", lambda _: limit)
    hidden, weight = (random((rows, 160), draw, torch.bfloat16, device) for rows in (9, 300))
    for best in PARTS:
        takes, part = triton_tiles.shared_bytes(best.tile, best.tile.rows, 160, 2), part_for(weight, best.tile.rows)
        assert part is not None
        assert triton_tiles.shared_bytes(part.tile, part.tile.rows, 160, 2) <= limit
        assert (part == best) == (takes <= limit)
        exact = hidden.double() @ weight.double().T
        assert_near(triton_vocabulary.vocabulary_scores(hidden, weight, part).logits, exact, torch.bfloat16)


def test_a_vocabulary_that_does_not_fit_is_refused(device: torch.device, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(triton_vocabulary, "shared_memory", lambda _: 12 * KIB)
    with pytest.raises(KernelError, match=r"A vocabulary times 9 rows takes 17,472 bytes .* choose kernels='torch'"):
        part_for(torch.empty((300, 160), dtype=torch.bfloat16, device=device), 9)


def test_attention_in_the_smallest_tiles(
    dtype: torch.dtype, draw: torch.Generator, device: torch.device, monkeypatch: pytest.MonkeyPatch
) -> None:
    least = attention.shared_bytes(attention.Tile(rows=16, keys=16, warps=4, stages=2), 16, dtype.itemsize)
    monkeypatch.setattr(attention, "shared_memory", lambda _: least)
    assert prefill_tile(1, 3, 16, dtype, device)[:2] == (16, 16)
    check(TritonAttention(), make_step([(1, 90), (40, 70), (1, 33), (9, 9)], Sizes(6, 2), dtype, device, draw))


@pytest.mark.parametrize(
    ("capability", "limit"),
    [(89, ADA), pytest.param(90, HOPPER, marks=pytest.mark.slow), pytest.param(120, ADA, marks=pytest.mark.slow)],
)
def test_what_is_compiled_takes_no_more_than_foretold(capability: int, limit: int, tmp_path: Path) -> None:
    surroundings = {**os.environ, "TRITON_CACHE_DIR": str(tmp_path), "TRITON_INTERPRET": "0"}
    command = [sys.executable, PROGRAM, str(capability), str(limit)]
    done = subprocess.run(command, env=surroundings, capture_output=True, text=True)
    assert not done.returncode, done.stderr
    said = json.loads(done.stdout.splitlines()[-1])
    turning = {tile._replace(programs=1) for tile in TURNING_TILES[256].values()}
    assert len(said["kernels"]) == 8 + len(TILES[256]) + len(turning) + (2 + len(PARTS)) * (capability >= 90)
    for name, takes, foretold in said["kernels"]:
        assert 0 < takes <= foretold <= limit, name
    assert ("out of resource: shared memory" in said["as on an H200"]) == (limit == ADA)
