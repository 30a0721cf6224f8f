"""Matrices with room for whole tiles behind their last row: what is there, what a tile reads, that nobody writes."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from near import assert_near, random

from guarded_memory import guarded_memory
from pellucid.ops import PlainOps
from pellucid.ops.triton import TritonOps
from pellucid.ops.triton_decoder import selected
from pellucid.ops.triton_matrix import TritonGated, TritonLinear, TritonVocabulary
from pellucid.ops.triton_norm import rms_norm
from pellucid.ops.triton_tiles import TUNED, Tile, rows_of
from pellucid.triton_bulk import ROOM, roomy, tiles_of

EPS = 1e-5
DTYPE = torch.float16
"""What is copied in bulk: float32 is not."""


def behind(matrix: torch.Tensor) -> torch.Tensor:
    """The rows in the memory of ``matrix``, whose rows are dense, behind its last: all that make a multiple of ROOM."""
    rows, width = len(matrix), matrix[0].numel()
    return matrix.as_strided((-rows % ROOM, width), (width, 1), matrix.storage_offset() + rows * width)


@pytest.mark.parametrize("rows", [1, 63, 64, 65, 200])
def test_room_for_whole_tiles(rows: int, dtype: torch.dtype, device: torch.device) -> None:
    like = torch.empty(0, dtype=dtype, device=device)
    made = roomy((rows, 3, 8), like)
    assert (made.shape, made.dtype, made.device) == ((rows, 3, 8), dtype, like.device)
    assert made.is_contiguous()
    assert made.untyped_storage().nbytes() == -(-rows // ROOM) * ROOM * 3 * 8 * made.itemsize
    assert roomy((0, 8), like).shape == (0, 8)


View = Callable[[torch.Tensor], torch.Tensor]


@pytest.mark.parametrize(
    ("numbers", "view", "there"),
    [
        (64 * 16, lambda x: x.view(64, 16)[:40], 64),
        (64 * 16, lambda x: x.view(64, 16), 64),
        (40 * 16, lambda x: x.view(40, 16), 40),
        (63 * 16, lambda x: x.view(63, 16)[:40], 40),
        (104 * 16, lambda x: x.view(104, 16)[40:80], 64),
        (103 * 16, lambda x: x.view(103, 16)[40:80], 40),  # its tile would end a row behind the memory
        (64 * 48, lambda x: x.view(64, 48)[:40, 16:32], 64),
        (63 * 48 + 32, lambda x: x[16:].as_strided((40, 16), (48, 1)), 64),
        (63 * 48 + 31, lambda x: x[16:].as_strided((40, 16), (48, 1)), 40),
        (256 * 16, lambda x: x.view(256, 16)[:130], 192),
        (191 * 16, lambda x: x.view(191, 16)[:130], 130),
    ],
)
def test_a_tile_reaches_into_the_memory_there_is(numbers: int, view: View, there: int, dtype: torch.dtype) -> None:
    matrix = view(torch.zeros(numbers, dtype=dtype))
    made = tiles_of(matrix, 64, 16)
    assert list(made.shape) == [there, 16]
    assert list(made.strides) == [matrix.stride(0), 1]
    assert list(made.block_shape) == [64, 16]
    assert made.base is matrix


def full_of_nan(x: torch.Tensor) -> torch.Tensor:
    """``x``, with NaN in the room behind it."""
    made = roomy(x.shape, x)
    behind(made).fill_(torch.nan)
    return made.copy_(x)


@pytest.mark.parametrize("rows", [5, 33, 70, 100])
def test_what_lies_there_changes_no_product(
    monkeypatch: pytest.MonkeyPatch, rows: int, draw: torch.Generator, device: torch.device
) -> None:
    """Nor the vocabulary's scores; and the products write nothing there."""
    inputs, outputs = 96, 64
    for count in (outputs, 2 * outputs):
        tile = Tile(32, 16, stages=2, rows=min(rows_of(rows), ROOM), bulk=True)
        monkeypatch.setitem(TUNED, (count, inputs, rows_of(rows)), tile)
    ops, plain = TritonOps(DTYPE), PlainOps(torch.float64)
    x, residual = random((rows, inputs), draw, DTYPE, device), random((rows, outputs), draw, DTYPE, device)
    weight = random((2 * outputs, inputs), draw, DTYPE, device) * inputs**-0.5
    exact = plain.linear([weight[:outputs]])(x.double())
    linear, gated = ops.linear([weight[:outputs]]), ops.gated(*weight.chunk(2))
    assert isinstance(linear, TritonLinear)
    assert isinstance(gated, TritonGated)
    x, added = full_of_nan(x), full_of_nan(residual)
    linear.add_to(added, x)
    assert_near(added, residual.double() + exact)
    assert behind(added).isnan().all()
    assert_near(linear(x), exact)
    assert_near(gated(x), plain.gated(*weight.chunk(2))(x.double()))
    vocabulary = ops.vocabulary(weight)
    assert isinstance(vocabulary, TritonVocabulary)
    scores = vocabulary.wanted_scores(x, torch.ones(rows, dtype=torch.int32, device=device))
    assert_near(scores.logits, x.double() @ weight.double().T, DTYPE)


MADE: dict[str, Callable[[torch.Tensor, torch.Tensor], torch.Tensor]] = {
    "norm": lambda x, _: rms_norm(x, None, EPS),
    "gates of a product": lambda x, weight: TritonGated(weight)(x),
    "normed gates": lambda x, weight: TritonGated(weight).normed(x, EPS),
    "rows of an embedding": lambda x, weight: TritonVocabulary(weight).rows(torch.arange(len(x), device=x.device)),
    "rows of a step": lambda x, _: selected(x, torch.arange(len(x), device=x.device)),
}


@pytest.mark.skipif(torch.cuda.is_available(), reason="memory is guarded on the processor")
@pytest.mark.parametrize("rows", [5, 40, 70])
@pytest.mark.parametrize("made", MADE.values(), ids=list(MADE))
def test_who_makes_room_writes_nothing_there(
    made: Callable[[torch.Tensor, torch.Tensor], torch.Tensor], rows: int, draw: torch.Generator, device: torch.device
) -> None:
    x, weight = random((rows, 48), draw, DTYPE, device), random((96, 48), draw, DTYPE, device)
    with guarded_memory():
        out = made(x, weight)
    assert not out.isnan().any()
    assert behind(out).shape == (-rows % ROOM, out.shape[1])
    assert behind(out).isnan().all()
