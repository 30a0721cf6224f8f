"""How a narrow product is cut into programs: the one table to tune."""

from __future__ import annotations

from typing import NamedTuple

import torch

NARROW = 64
"""The most rows that the narrow kernels take; products with more are left to cuBLAS."""

ROWS = (1, 16, 64)
"""Rows that a program computes: a kernel is compiled for each, so there are few."""

WIDE = 3072
"""Of rows of more numbers, 16 cost as much to read as the weights do: cuBLAS takes those that are more than that."""


class Tile(NamedTuple):
    """What one program computes, and with what.

    ``columns``: outputs. ``first`` and ``last``: how the inputs are cut; all of them at once if
    ``first + last`` covers them, else in steps of ``first``, ``stages`` of them under way; one row takes no ``last``
    and has two steps under way. ``split``: groups of warps that share out the inputs of a tile, of 16 each at least
    (several rows only). ``apart``: the norm of the input is a kernel of its own.
    """

    columns: int
    first: int
    last: int = 0
    split: int = 1
    warps: int = 4
    stages: int = 3
    apart: bool = False


TUNED: dict[tuple[int, int, int], Tile | None] = {}
"""Tiles by (outputs, inputs, rows of `ROWS`), or None for cuBLAS, where the rule below is not the best."""


def rows_of(tokens: int) -> int:
    """The least of `ROWS` that holds ``tokens``."""
    return next(rows for rows in ROWS if tokens <= rows)


def tile(outputs: int, inputs: int, tokens: int) -> Tile | None:
    """The tile of a product of ``tokens`` rows with a weight matrix [outputs, inputs]; None if cuBLAS does it."""
    if not 0 < tokens <= NARROW:
        return None
    rows = rows_of(tokens)
    if (outputs, inputs, rows) in TUNED:
        return TUNED[outputs, inputs, rows]
    return _for_one_row(outputs, inputs) if rows == 1 else _for_rows(outputs, inputs, rows)


def tile_for(weight: torch.Tensor, tokens: int) -> Tile | None:
    """The same, with ``weight``."""
    outputs, inputs = weight.shape
    return tile(outputs, inputs, tokens)


def _for_one_row(outputs: int, inputs: int) -> Tile:
    """Plain multiplications, up to 2,048 inputs all in registers at once."""
    depth = power_of_two(inputs)
    return Tile(8 if outputs <= 32768 else 16, first=min(depth, 1024 if depth > 2048 else 2048), warps=4)


def _for_rows(outputs: int, inputs: int, rows: int) -> Tile | None:
    """Tensor cores: the whole depth at once where it fits into registers, else a stream of tiles."""
    if rows > 16 and inputs > WIDE:
        return None
    columns = 16 if outputs <= 768 else 32 if outputs <= 32768 else 64
    depth = max(power_of_two(inputs), 16)
    if columns == 64:
        return Tile(64, first=min(64, depth), stages=4, warps=8)
    if rows > 16:
        return Tile(columns, first=min(64, depth), stages=4)
    if inputs <= 1536:
        split = 4 if inputs >= 64 else 1
        first = max(power_of_two(inputs + 1) // 2, 16 * split)
        last = 0 if inputs <= first else max(power_of_two(inputs - first), 16 * split)
        return Tile(columns, first, last, split)
    return Tile(columns, first=min(128, depth), stages=4)


def power_of_two(number: int) -> int:
    """The least that is not below ``number``."""
    return 1 << max(number - 1, 0).bit_length()
