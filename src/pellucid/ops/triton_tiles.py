"""How a narrow product is cut into programs: the one table to tune."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import NamedTuple

import torch
import triton

from pellucid.triton_bulk import copies_in_bulk, copyable
from pellucid.triton_memory import first_to_fit

NARROW = 64
"""Rows: up to so many, a product of any matrix may have a tile, and no program computes more."""

WIDE = (128, 256)
"""Rows: up to so many, products of a few matrices have one, a tile for each. All else is left to cuBLAS."""

LEAST_COLUMNS = 16
"""Of a program that computes several rows."""

ROWS = (1, 16, 32, 64)
"""Rows that tiles are chosen for, beside those of `WIDE`, and that a program computes: a kernel is compiled for each,
so there are few."""


class Tile(NamedTuple):
    """What one program computes, and with what.

    ``columns``: outputs. ``first`` and ``last``: how the inputs are cut; all of them at once if
    ``first + last`` covers them, else in steps of ``first``, ``stages`` of them under way; one row takes no ``last``
    and has two steps under way. ``split``: groups of warps that share out the inputs of a tile, of 16 each at least
    (several rows only). ``shares``: programs that share out the inputs of the same columns, each a multiple of 16 of
    them (several rows, and no norm; ``first`` and ``last`` cut a share). ``late``: the next kernel may start once
    this one has its input, not at once (what turns queries and keys always waits so). ``rows``: of `ROWS` but 1, how
    many a program computes; 0: as many as hold all, which none does if there are more than `NARROW`. ``bulk``: steps
    are copied in bulk (see `in_bulk` of the kernels; several rows, no ``last`` and no ``split``, and ``first`` divides
    a share): of two-byte numbers, where the device can.
    """

    columns: int
    first: int
    last: int = 0
    split: int = 1
    warps: int = 4
    stages: int = 3
    shares: int = 1
    late: bool = False
    rows: int = 0
    bulk: bool = False


TUNED: dict[tuple[int, int, int], Tile | None] = {
    # SmolLM2-135M: q, k and v; output; gate and up; down; vocabulary
    (960, 576, 16): Tile(16, 512, 64, warps=8),
    (576, 576, 16): Tile(16, 512, 64),
    (3072, 576, 16): Tile(32, 512, 64),
    (49152, 576, 16): None,
    (960, 576, 32): Tile(16, 512, 64),
    (576, 576, 32): Tile(16, 512, 64, late=True),
    (3072, 576, 32): Tile(16, 512, 64, late=True),
    (576, 1536, 32): Tile(32, 256, 128, shares=4, late=True),
    (960, 576, 64): Tile(32, 512, 64, rows=16),
    (576, 576, 64): Tile(32, 512, 64, late=True, rows=16),
    (3072, 576, 64): Tile(32, 64, stages=6),
    (576, 1536, 64): Tile(16, 128, stages=6),
    (960, 576, 128): Tile(32, 64, stages=6, rows=64),
    (576, 576, 128): Tile(32, 512, 64, late=True, rows=16),
    (576, 1536, 128): Tile(16, 256, stages=4, rows=64, bulk=True),
    (576, 576, 256): Tile(32, 512, 64, late=True, rows=16),
    (576, 1536, 256): Tile(32, 256, stages=4, rows=64, bulk=True),
    # Qwen3-0.6B
    (4096, 1024, 16): Tile(32, 1024),
    (1024, 2048, 16): Tile(32, 512, shares=4),
    (6144, 1024, 16): Tile(32, 1024),
    (1024, 3072, 16): Tile(32, 512, shares=6),
    (1024, 2048, 32): Tile(32, 512, shares=4),
    (1024, 3072, 32): Tile(32, 512, warps=8, shares=6, late=True),
    (1024, 2048, 64): Tile(16, 256, stages=4, bulk=True),
    (6144, 1024, 64): Tile(64, 256, bulk=True),
    (1024, 3072, 64): Tile(16, 128, stages=6, shares=2),
    (1024, 2048, 128): Tile(16, 256, stages=4, rows=64, bulk=True),
    (1024, 3072, 128): Tile(16, 256, stages=4, rows=64, bulk=True),
    (1024, 2048, 256): Tile(32, 256, stages=4, rows=64, bulk=True),
    (1024, 3072, 256): Tile(32, 256, stages=4, rows=64, bulk=True),
    # Llama-8B
    (6144, 4096, 1): Tile(8, 2048),
    (4096, 4096, 1): Tile(16, 2048),
    (28672, 4096, 1): Tile(8, 4096),
    (4096, 14336, 1): Tile(16, 1024),
    (6144, 4096, 16): None,
    (4096, 4096, 16): Tile(32, 512, shares=2, bulk=True),
    (28672, 4096, 16): Tile(128, 256, bulk=True),
    (4096, 14336, 16): Tile(64, 256, stages=4, shares=2, bulk=True),
    (4096, 4096, 32): Tile(64, 128, stages=6, shares=2),
    (4096, 14336, 32): Tile(64, 128, stages=6, shares=2, late=True),
    (4096, 4096, 64): Tile(64, 128, stages=6, shares=2),
    (28672, 4096, 64): Tile(128, 128, stages=4, rows=64, bulk=True),
    (4096, 14336, 64): Tile(64, 128, stages=6, shares=2),
}
"""Tiles by (outputs, inputs, rows as from `rows_of`), or None for cuBLAS: what was best in the graph of a whole step on
an H200, where the rule below was not. On another card they are a start: see `fitted`."""


def rows_of(tokens: int) -> int:
    """The least of `ROWS` and `WIDE` that holds ``tokens``."""
    return next(rows for rows in (*ROWS, *WIDE) if tokens <= rows)


def tile(outputs: int, inputs: int, tokens: int) -> Tile | None:
    """The tile of a product of ``tokens`` rows with a weight matrix [outputs, inputs]; None if cuBLAS does it."""
    if not 0 < tokens <= WIDE[-1]:
        return None
    rows = rows_of(tokens)
    if (outputs, inputs, rows) in TUNED or rows > NARROW:
        return TUNED.get((outputs, inputs, rows))
    return _for_one_row(outputs, inputs) if rows == 1 else _for_rows(outputs, inputs, rows)


def tile_for(weight: torch.Tensor, tokens: int) -> Tile | None:
    """The same, with ``weight``: cuBLAS also if its best tile is one in bulk, and it cannot be copied so."""
    outputs, inputs = weight.shape
    best = tile(outputs, inputs, tokens)
    return None if best is not None and best.bulk and not in_bulk_with(weight) else best


def in_bulk_with(weight: torch.Tensor) -> bool:
    """Whether products with ``weight`` may copy tiles in bulk: of two-byte numbers, where that can be done."""
    return weight.itemsize == 2 and copies_in_bulk(weight.device) and copyable(weight)


def fitted(chosen: Tile, rows: int, inputs: int, dtype: torch.dtype, limit: float, what: str | None = None) -> Tile:
    """``chosen``, if it makes do with ``limit`` bytes of shared memory, or the largest like it that does.

    It is multiplied with ``rows`` rows, of ``inputs`` numbers each. Raises `KernelError`, about ``what`` is to be
    computed, if nothing does.
    """
    need = partial(shared_bytes, rows=rows, inputs=inputs, itemsize=dtype.itemsize)
    what = what or f"A product of {rows} rows"
    return first_to_fit(_ever_smaller(chosen, inputs), need, limit, what, "kernels='torch'")


def shared_bytes(tile: Tile, rows: int, inputs: int, itemsize: int) -> int:
    """Bytes of shared memory that a program takes, at most: as Triton 3.6 compiles it for any card.

    Rows and columns of the steps under way lie there. The last step needs no place if it is multiplied from registers:
    64 rows of two bytes a number are not, from compute capability 9.0 on. What is there all at once passes through it,
    if groups of warps share out the inputs either the rows or the columns; but float32 is multiplied from there.
    """
    if rows == 1:
        return 4 * tile.columns
    depth = tile.first + tile.last
    if tile.bulk:  # what is under way, sums on their way to memory, barriers
        return tile.stages * (rows + tile.columns) * tile.first * itemsize + 4 * rows * tile.columns + 64
    if depth < inputs // tile.shares:
        numbers = (tile.stages - (rows < 64 or itemsize == 4)) * (rows + tile.columns) * tile.first
    else:
        numbers = (rows + tile.columns) * depth // (2 if tile.split > 1 and itemsize == 2 else 1)
    squares, sums = 4 * tile.warps * rows, 4 * tile.split * rows * tile.columns
    return max(numbers * itemsize + squares, sums)


def _ever_smaller(tile: Tile, inputs: int) -> Iterator[Tile]:
    """Steps instead of all inputs at once, then fewer of them under way, then shorter ones."""
    yield tile
    if tile.first + tile.last >= inputs // tile.shares and not tile.bulk:
        tile = tile._replace(first=128, last=0, split=1, warps=4, stages=6)
        yield tile
    while tile.stages > 2:
        tile = tile._replace(stages=tile.stages - 1)
        yield tile
    while tile.first > 16 * tile.split:
        tile = tile._replace(first=tile.first // 2)
        yield tile


def _for_one_row(outputs: int, inputs: int) -> Tile:
    """Plain multiplications, up to 2,048 inputs all in registers at once."""
    depth = triton.next_power_of_2(inputs)
    return Tile(8 if outputs <= 32768 else 16, first=min(depth, 1024 if depth > 2048 else 2048), warps=4)


def _for_rows(outputs: int, inputs: int, rows: int) -> Tile | None:
    """Tensor cores, the whole depth at once if registers hold it; cuBLAS for more rows, and for a vocabulary."""
    if rows > 16 or outputs > 32768:
        return None
    columns = 16 if outputs <= 768 else 32
    depth = max(triton.next_power_of_2(inputs), 16)
    if inputs > 1536:
        return Tile(columns, first=min(128, depth), stages=6)
    split = 4 if inputs >= 64 else 1
    first = max(triton.next_power_of_2(inputs + 1) // 2, 16 * split)
    last = 0 if inputs <= first else max(triton.next_power_of_2(inputs - first), 16 * split)
    return Tile(columns, first, last, split)
