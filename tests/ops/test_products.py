"""Matrix products of every set of operations against exact ones: all kinds of weights, odd sizes, few rows and many."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
import torch.nn.functional as F
from matrices import EXACT, KINDS, UNIT, assert_close, exact, random_matrix, slack, strided, wide

from pellucid.ops import Matrix, Ops

MOST_ROWS = 130
WIDTHS = (1, 8, 33, 40, 64, 70, 130, 257)
DEPTHS = dict.fromkeys(KINDS, (32, 160)) | {"dense": (2, 7, 62)}  # 7 is no number of pairs

pytestmark = [pytest.mark.parametrize("kind", KINDS), pytest.mark.parametrize("width", WIDTHS)]


def batches(ops: Ops) -> list[int]:
    """Numbers of rows; oneDNN makes a kernel of its own for each."""
    return [*range(1, 41), MOST_ROWS] if ops.name == "compiled" else [1, 2, 7, 32, 40, MOST_ROWS]


def of_all(batches: list[int], rows: torch.Tensor) -> torch.Tensor:
    """The first rows of each batch, one batch after the other."""
    return torch.cat([rows[:count] for count in batches])


def random_rows(ops: Ops, depth: int, draw: torch.Generator) -> torch.Tensor:
    return torch.randn((MOST_ROWS, depth), generator=draw).to(ops.dtype)


def random_matrices(ops: Ops, kind: str, width: int, draw: torch.Generator) -> Iterator[Matrix]:
    for depth in DEPTHS[kind]:
        yield random_matrix(kind, (width, depth), ops.dtype, draw)


def roundings(ops: Ops, matrix: Matrix) -> int:
    """Compiled kernels round once, when everything has been added; torch may round the product and each sum."""
    return 1 if ops.name == "compiled" and matrix.shape[1] % 2 == 0 else 3


def test_linear(ops: Ops, kind: str, width: int, draw: torch.Generator) -> None:
    for matrix in random_matrices(ops, kind, width, draw):
        x, sizes = random_rows(ops, matrix.shape[1], draw), batches(ops)
        linear = ops.linear([matrix])
        found = torch.cat([linear(strided(x[:rows])) for rows in sizes])
        assert_close(found, of_all(sizes, exact([matrix], x)), of_all(sizes, slack(ops, [matrix], x)))


def test_bias(ops: Ops, kind: str, width: int, draw: torch.Generator) -> None:
    for matrix in random_matrices(ops, kind, width, draw):
        x, bias = random_rows(ops, matrix.shape[1], draw), torch.randn(width, generator=draw).to(ops.dtype)
        linear, product = ops.linear([matrix], bias), exact([matrix], x)
        between = UNIT[torch.float32] + (roundings(ops, matrix) - 1) * UNIT[ops.dtype]
        off = slack(ops, [matrix], x) + between * (product.abs() + bias.double().abs())
        for rows in (1, 5, MOST_ROWS):
            assert_close(linear(strided(x[:rows])), product[:rows] + bias.double(), off[:rows])


def test_adding_to_a_residual(ops: Ops, kind: str, width: int, draw: torch.Generator) -> None:
    """The residual's rows lie apart, and what lies between them stays."""
    for matrix in random_matrices(ops, kind, width, draw):
        x, residual = random_rows(ops, matrix.shape[1], draw), torch.randn((MOST_ROWS, width), generator=draw)
        residual = residual.to(ops.dtype)
        linear, product = ops.linear([matrix]), exact([matrix], x)
        between = UNIT[torch.float32] + (roundings(ops, matrix) - 1) * UNIT[ops.dtype]
        off = slack(ops, [matrix], x) + between * (product.abs() + residual.double().abs())
        for rows in (1, 5, MOST_ROWS):
            out = strided(residual[:rows])
            linear.add_to(out, strided(x[:rows]))
            assert_close(out, residual[:rows].double() + product[:rows], off[:rows])
            assert out._base is not None
            assert int(out._base.isnan().sum()) == out._base.numel() - out.numel()


def test_gated(ops: Ops, kind: str, width: int, draw: torch.Generator) -> None:
    for gate, up in zip(*(list(random_matrices(ops, kind, width, draw)) for _ in range(2)), strict=True):
        x, sizes = random_rows(ops, gate.shape[1], draw), batches(ops)
        gated = ops.gated(gate, up)
        found = torch.cat([gated(strided(x[:rows])) for rows in sizes])
        expected = EXACT.gated(wide([gate]), wide([up]))(x.double())
        assert_close(found, of_all(sizes, expected), of_all(sizes, gated_slack(ops, gate, up, x)))


def gated_slack(ops: Ops, gate: Matrix, up: Matrix, x: torch.Tensor) -> torch.Tensor:
    """silu is nowhere steeper than 1.1; the kernels' own is good to 4e-7; torch rounds gate, up and silu on the way."""
    g, u = exact([gate], x), exact([up], x)
    between = 0.0 if roundings(ops, gate) == 1 else UNIT[ops.dtype]
    g_off, u_off = slack(ops, [gate], x) + between * g.abs(), slack(ops, [up], x) + between * u.abs()
    return 1.1 * g_off * (u.abs() + u_off) + F.silu(g).abs() * u_off + (4e-7 + 2 * between) * (F.silu(g) * u).abs()


def test_vocabulary(ops: Ops, kind: str, width: int, draw: torch.Generator) -> None:
    for matrix in random_matrices(ops, kind, width, draw):
        x, vocabulary = random_rows(ops, matrix.shape[1], draw), ops.vocabulary(matrix)
        expected, off = exact([matrix], x), slack(ops, [matrix], x)
        if roundings(ops, matrix) > 1:  # weights and scores are rounded to the type of the model
            off = off + 2 * UNIT[ops.dtype] * EXACT.linear([wide([matrix]).abs()])(x.double().abs())
        for rows in (1, 5, MOST_ROWS):
            scores = vocabulary.scores(strided(x[:rows]))
            assert scores.dtype is torch.float32
            assert_close(scores, expected[:rows], off[:rows])
        ids = torch.randint(width, (50,), generator=draw)
        found = vocabulary.rows(ids)
        assert found.dtype is ops.dtype
        assert torch.equal(found, wide([matrix]).to(ops.dtype)[ids])
