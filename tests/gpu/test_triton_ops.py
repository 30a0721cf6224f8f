"""The operations in Triton against plain torch: every number of rows that has a way of its own, odd sizes, far rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import nullcontext

import pytest
import torch
from near import apart, assert_near, random, strided
from triton.tools.tensor_descriptor import TensorDescriptor

from guarded_memory import guarded_memory
from pellucid.ops import PlainOps, triton_matmul
from pellucid.ops.triton import TritonOps
from pellucid.ops.triton_gate import gated
from pellucid.ops.triton_matrix import TritonGated, TritonLinear, TritonVocabulary
from pellucid.ops.triton_norm import rms_norm
from pellucid.ops.triton_tiles import TUNED, Tile, rows_of
from pellucid.triton_bulk import tiles_of
from pellucid.triton_heads import Unscaled

EPS = 1e-5
SHAPES = ((32, 64), (35, 200), (16, 576))
"""[out, in]: exact tiles, tiles that end in the middle, and 576 numbers, which are 512 and 64."""
CASES = [(SHAPES[0], rows) for rows in (1, 2, 8, 64, 65, 100)] + [
    (shape, rows) for shape in SHAPES[1:] for rows in (1, 17)
]


@pytest.fixture(autouse=True)
def _guarded(device: torch.device) -> Iterator[None]:
    """Every new tensor is NaN until it is written to, and no kernel writes beyond its ends."""
    with guarded_memory() if device.type == "cpu" else nullcontext():
        yield


@pytest.fixture
def tiny_tiles(monkeypatch: pytest.MonkeyPatch) -> None:
    """Many steps for few numbers: the ways of large matrices, at the sizes of the test."""
    for outputs, inputs in SHAPES:
        for rows, tile in ((1, Tile(8, 16)), (16, Tile(16, 32, split=2, stages=2)), (64, Tile(32, 16))):
            monkeypatch.setitem(TUNED, (outputs, inputs, rows), tile)


def check_products(shape: tuple[int, int], rows: int, dtype: torch.dtype, draw: torch.Generator, device: str) -> None:
    """Everything that is done with a weight matrix of ``shape``, with the input as it is and normed on the way."""
    outputs, inputs = shape
    x = random((rows, inputs), draw, dtype, device)
    weight = random((2 * outputs, inputs), draw, dtype, device) * inputs**-0.5
    bias, norm = random((outputs,), draw, dtype, device), 1 + random((inputs,), draw, dtype, device) / 4
    residual = random((rows, outputs), draw, dtype, device)
    ops, plain = TritonOps(dtype), PlainOps(torch.float64)
    exact = plain.linear([weight[:outputs]], bias.double())
    normed = plain.rms_norm(x.double(), torch.ones_like(norm).double(), EPS)
    linear = ops.linear([weight[:outputs]], bias)
    assert isinstance(linear, TritonLinear)
    assert_near(linear(strided(x)), exact(x.double()))
    if dtype is not torch.float16:
        assert_near(linear.normed(strided(x), EPS), exact(normed))
    added = strided(residual)
    linear.add_to(added, strided(x))
    assert_near(added, residual.double() + exact(x.double()))
    assert added._base is not None
    assert int(added._base.isnan().sum()) == added._base.numel() - added.numel()
    check_gated(ops, plain, weight, x, norm)
    vocabulary = ops.vocabulary(weight)
    assert isinstance(vocabulary, TritonVocabulary)
    scores = ops.scores(vocabulary, strided(x), norm, EPS)
    assert scores.dtype is torch.float32
    weighted = plain.rms_norm(x.double(), norm.double(), EPS)
    assert_near(scores, plain.vocabulary(weight).scores(weighted).double(), dtype)
    assert_near(vocabulary.scores(x), plain.vocabulary(weight).scores(x.double()).double(), dtype)


def check_gated(ops: TritonOps, plain: PlainOps, weight: torch.Tensor, x: torch.Tensor, norm: torch.Tensor) -> None:
    gate, up = weight.chunk(2)
    gated, exact = ops.gated(gate, up), plain.gated(gate, up)
    assert isinstance(gated, TritonGated)
    assert_near(gated(strided(x)), exact(x.double()))
    if x.dtype is not torch.float16:
        ones = torch.ones_like(x[0]).double()
        assert_near(gated.normed(strided(x), EPS), exact(plain.rms_norm(x.double(), ones, EPS)))


@pytest.mark.parametrize(("shape", "rows"), CASES)
def test_products(
    shape: tuple[int, int], rows: int, dtype: torch.dtype, draw: torch.Generator, device: torch.device
) -> None:
    check_products(shape, rows, dtype, draw, str(device))


@pytest.mark.usefixtures("tiny_tiles")
@pytest.mark.parametrize("rows", [1, 8, 17])
@pytest.mark.parametrize("shape", SHAPES[1:2])
def test_products_in_steps(
    shape: tuple[int, int], rows: int, dtype: torch.dtype, draw: torch.Generator, device: torch.device
) -> None:
    check_products(shape, rows, dtype, draw, str(device))


@pytest.mark.parametrize("shape", [(72, 96), (33, 48)])
@pytest.mark.parametrize(
    ("tile", "rows"),
    [
        (Tile(16, 16, shares=3), 8),
        (Tile(32, 16, shares=2), 40),
        (Tile(32, 32, 16, rows=16, late=True), 40),
        (Tile(16, 16, shares=3, rows=32), 33),
    ],
    ids=str,
)
def test_programs_share_out_the_inputs(
    monkeypatch: pytest.MonkeyPatch,
    tile: Tile,
    shape: tuple[int, int],
    rows: int,
    dtype: torch.dtype,
    draw: torch.Generator,
    device: torch.device,
) -> None:
    """And their rows. Twice, so that what the first time left behind is seen; rows of any magnitude are normed."""
    outputs, inputs = shape
    monkeypatch.setitem(TUNED, (outputs, inputs, rows_of(rows)), tile)
    x, residual = random((rows, inputs), draw, dtype, device), random((rows, outputs), draw, dtype, device)
    loud = (x * 2.0 ** torch.randint(-4, 5, (rows, 1), generator=draw).to(device)).to(dtype)
    weight = random((outputs, inputs), draw, dtype, device) * inputs**-0.5
    bias = random((outputs,), draw, dtype, device)
    ops, plain = TritonOps(dtype), PlainOps(torch.float64)
    linear, exact = ops.linear([weight], bias), plain.linear([weight], bias.double())
    assert isinstance(linear, TritonLinear)
    for _ in range(2):
        added = strided(residual)
        linear.add_to(added, strided(x))
        assert_near(added, residual.double() + exact(x.double()))
        assert_near(linear(x), exact(x.double()))
        ones, y = torch.ones_like(x[0]).double(), x if dtype is torch.float16 else loud
        assert_near(linear.normed(y, EPS), exact(plain.rms_norm(y.double(), ones, EPS)))


@pytest.mark.parametrize(
    ("tile", "rows"),
    [
        (Tile(16, 16, bulk=True), 8),
        (Tile(32, 16, shares=3, stages=2, late=True, bulk=True), 40),
        (Tile(32, 32, stages=2, rows=16, bulk=True), 33),
        (Tile(64, 64, rows=64, bulk=True), 120),
    ],
    ids=str,
)
@pytest.mark.parametrize("outputs", [64, 72])
def test_tiles_copied_in_bulk(
    monkeypatch: pytest.MonkeyPatch,
    tile: Tile,
    rows: int,
    outputs: int,
    dtype: torch.dtype,
    draw: torch.Generator,
    device: torch.device,
) -> None:
    """And the same tiles without, where rows begin anywhere: of inputs that fill the last step, or do not, of several
    row tiles, with what lies outside NaN. Products of float32 are left to cuBLAS."""
    inputs = 96
    for count in (outputs, 2 * outputs):
        monkeypatch.setitem(TUNED, (count, inputs, rows_of(rows)), tile._replace(shares=1) if count > outputs else tile)
    described: list[torch.Tensor] = []
    monkeypatch.setattr(triton_matmul, "tiles_of", recorded(described))
    x = random((rows, inputs), draw, dtype, device)
    weight = random((2 * outputs, inputs), draw, dtype, device) * inputs**-0.5
    bias, residual = random((outputs,), draw, dtype, device), random((rows, outputs), draw, dtype, device)
    ops, plain = TritonOps(dtype), PlainOps(torch.float64)
    linear, exact = ops.linear([weight[:outputs]], bias), plain.linear([weight[:outputs]], bias.double())
    assert isinstance(linear, TritonLinear)
    normed = plain.rms_norm(x.double(), torch.ones_like(x[0]).double(), EPS)
    for far, copies in ((strided, 0), (apart, 0 if dtype is torch.float32 else 2)):
        described.clear()
        added = far(residual)
        linear.add_to(added, far(x))
        assert_near(added, residual.double() + exact(x.double()))
        assert len(described) == copies
        assert_near(linear(far(x)), exact(x.double()))
        if dtype is not torch.float16:
            assert_near(linear.normed(far(x), EPS), exact(normed))
        gate, up = weight.chunk(2)
        gated, exactly = ops.gated(gate, up), plain.gated(gate, up)
        assert isinstance(gated, TritonGated)
        described.clear()
        assert_near(gated(far(x)), exactly(x.double()))
        assert len(described) == copies
        if dtype is not torch.float16:
            assert_near(gated.normed(far(x), EPS), exactly(normed))


def recorded(seen: list[torch.Tensor]) -> Callable[[torch.Tensor, int, int], TensorDescriptor]:
    """`tiles_of`, which keeps what it is asked for tiles of."""

    def tiles(matrix: torch.Tensor, rows: int, columns: int) -> TensorDescriptor:
        seen.append(matrix)
        return tiles_of(matrix, rows, columns)

    return tiles


def test_rows_of_an_embedding(dtype: torch.dtype, draw: torch.Generator, device: torch.device) -> None:
    matrix = random((50, 72), draw, dtype, device)
    ids = torch.randint(50, (30,), generator=draw).to(device)
    assert torch.equal(TritonOps(dtype).vocabulary(matrix).rows(ids), matrix[ids])


@pytest.mark.parametrize("width", [1, 24, 64, 200])
def test_norm(width: int, dtype: torch.dtype, draw: torch.Generator, device: torch.device) -> None:
    """Of rows that lie apart, and of some heads of each token."""
    ops, exact = TritonOps(dtype), PlainOps(torch.float64)
    weight = 1 + random((width,), draw, dtype, device) / 4
    x, heads = random((9, width), draw, dtype, device), random((3, 5, width), draw, dtype, device)[:, 1:4]
    assert_near(ops.rms_norm(strided(x), weight, EPS), exact.rms_norm(x.double(), weight.double(), EPS))
    assert_near(ops.rms_norm(heads, weight, EPS), exact.rms_norm(heads.double(), weight.double(), EPS))
    assert_near(rms_norm(strided(x), None, EPS), exact.rms_norm(x.double(), torch.ones_like(x[0]).double(), EPS))


def test_gate_of_rows_scaled_after_the_product(dtype: torch.dtype, draw: torch.Generator, device: torch.device) -> None:
    """Rows of a thousandth and of a thousand come out as normed ones; more columns than a program takes."""
    magnitudes = torch.tensor([[1e-3], [1.0], [1e3]], device=device)
    x = (random((3, 35), draw, torch.float32, device) * magnitudes).to(dtype)
    weight = random((2 * 4100, 35), draw, dtype, device) / 6
    exact, plain = x.double(), PlainOps(torch.float64)
    expected = plain.gated(*weight.double().chunk(2))(plain.rms_norm(exact, torch.ones_like(exact[0]), EPS))
    assert_near(gated(x @ weight.T, Unscaled(strided(x), EPS)), expected)


@pytest.mark.parametrize("dim", [2, 24, 64])
def test_rotation(dim: int, dtype: torch.dtype, draw: torch.Generator, device: torch.device) -> None:
    """The first heads turn, those behind them do not, and every token turns by its own angles."""
    heads = random((7, 12, dim), draw, dtype, device)
    angles = torch.rand((7, dim // 2), generator=draw).to(device) * 1000
    expected, behind = heads[:, :10].double(), heads[:, 10:].clone()
    PlainOps(torch.float64).rotate(expected, angles.cos(), angles.sin())
    TritonOps(dtype).rotate(heads[:, :10], angles.cos(), angles.sin())
    assert_near(heads[:, :10], expected)
    assert torch.equal(heads[:, 10:], behind)


def test_no_rows(dtype: torch.dtype, device: torch.device) -> None:
    ops, none = TritonOps(dtype), torch.zeros((0, 64), dtype=dtype, device=device)
    assert ops.linear([torch.zeros((32, 64), dtype=dtype, device=device)])(none).shape == (0, 32)
    assert ops.rms_norm(none, none.new_zeros(64), EPS).shape == (0, 64)
