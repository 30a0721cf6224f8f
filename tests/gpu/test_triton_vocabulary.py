"""Scores of a vocabulary, those that are wanted and the best of every part, against the same in float64."""

from __future__ import annotations

import pytest
import torch
from near import assert_near, random

from pellucid.ops import triton_tiles, triton_vocabulary
from pellucid.ops.triton import TritonOps
from pellucid.ops.triton_matrix import TritonVocabulary
from pellucid.ops.triton_vocabulary import PARTS, part_for, vocabulary_scores

LAST_ID = 2**31 - 1
ROWS = [2, 16, 17, 64, 65, 128]
HALVES = [torch.float16, torch.bfloat16]


def made(draw: torch.Generator, rows: int, tokens: int, inputs: int, dtype: torch.dtype, device: torch.device):  # type: ignore[no-untyped-def]
    return (random(shape, draw, dtype, str(device)) for shape in ((rows, inputs), (tokens, inputs)))


def tokens_of(best: torch.Tensor) -> torch.Tensor:
    """The token of the best part."""
    return (best.amax(1) & LAST_ID) ^ LAST_ID


@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize(("tokens", "inputs"), [(700, 96), (128, 136), (5, 8)])
@pytest.mark.parametrize("rows", ROWS)
def test_scores_and_the_best_of_every_part(
    rows: int, tokens: int, inputs: int, dtype: torch.dtype, draw: torch.Generator, device: torch.device
) -> None:
    """Parts and steps that are not full; what is wanted is what there is if all is."""
    hidden, weight = made(draw, rows, tokens, inputs, dtype, device)
    part = part_for(weight, rows)
    assert part is not None
    exact = hidden.double() @ weight.double().T
    everything = vocabulary_scores(hidden, weight, part)
    assert everything.best is None
    assert_near(everything.logits, exact, dtype)
    wanted = (torch.arange(rows) % 3 == 1).int().to(device)
    logits, best = vocabulary_scores(hidden, weight, part, wanted)
    assert torch.equal(logits[wanted.bool()], everything.logits[wanted.bool()])
    assert best is not None
    assert best.shape == (rows, -(-tokens // part.tile.columns))
    for number, columns in enumerate(everything.logits.split(part.tile.columns, 1)):
        assert torch.equal(tokens_of(best[:, number : number + 1]), columns.argmax(1) + number * part.tile.columns)
    assert torch.equal(tokens_of(best), everything.logits.argmax(1))


def test_rows_that_nobody_wants_are_not_written(
    draw: torch.Generator, device: torch.device, monkeypatch: pytest.MonkeyPatch
) -> None:
    hidden, weight = made(draw, 20, 300, 32, torch.bfloat16, device)
    monkeypatch.setattr(triton_vocabulary.torch, "empty", lambda size, **kind: torch.full(size, -7, **kind))
    wanted = (torch.arange(20) % 2).int().to(device)
    logits, best = vocabulary_scores(hidden, weight, PARTS[1], wanted)
    assert (logits[::2] == -7).all()
    assert (logits[1::2] != -7).all()
    assert best is not None
    assert (best != -7).all()


@pytest.mark.parametrize("rows", [3, 40])
def test_of_equals_the_lowest_id_is_best(rows: int, draw: torch.Generator, device: torch.device) -> None:
    """In one part and in two; all scores 0, of both signs; all negative. Of whole numbers: their sums are equal in
    whatever order a processor adds them up."""
    hidden, weight = made(draw, rows, 600, 32, torch.bfloat16, device)
    hidden = (4 * hidden).round()
    part = part_for(weight, rows)
    assert part is not None
    wanted = torch.zeros(rows, dtype=torch.int32, device=device)
    weight[[40, 41, 300, 599]] = 50 * hidden[0]
    hidden[1] = 0
    weight[7] *= -0.0
    _, best = vocabulary_scores(hidden, weight, part, wanted)
    assert best is not None
    assert tokens_of(best)[:2].tolist() == [40, 0]
    _, best = vocabulary_scores(
        -weight[40].expand(rows, -1).contiguous(), weight[40].expand(600, -1).contiguous(), part, wanted
    )
    assert best is not None
    assert (tokens_of(best) == 0).all()


@pytest.mark.parametrize("poison", [float("nan"), float("inf"), float("-inf")])
def test_what_is_no_number_is_never_the_best(poison: float, draw: torch.Generator, device: torch.device) -> None:
    hidden, weight = made(draw, 4, 300, 32, torch.bfloat16, device)
    part = part_for(weight, 4)
    assert part is not None
    hidden[2] = poison
    wanted = torch.zeros(4, dtype=torch.int32, device=device)
    best = vocabulary_scores(hidden, weight, part, wanted).best
    assert best is not None
    keys = (best & LAST_ID) ^ LAST_ID
    assert (keys // part.tile.columns == torch.arange(best.shape[1], device=device)).all()
    exact = hidden.double() @ weight.double().T
    assert torch.equal(tokens_of(best)[[0, 1, 3]], exact[[0, 1, 3]].argmax(1))
    if poison != poison:
        assert tokens_of(best)[2] == 0


def test_what_is_left_to_torch(draw: torch.Generator, device: torch.device, monkeypatch: pytest.MonkeyPatch) -> None:
    """No row, one and many, wide numbers, rows that begin where no copy may, and devices without such copies."""

    def part(rows: int, inputs: int, dtype: torch.dtype) -> object:
        return part_for(torch.empty((300, inputs), dtype=dtype, device=device), rows)

    assert part(128, 64, torch.bfloat16) == PARTS[-1]
    assert part(2, 64, torch.float16) == PARTS[0]
    assert part(0, 64, torch.bfloat16) is part(1, 64, torch.bfloat16) is None
    assert part(129, 64, torch.bfloat16) is None
    assert part(2, 64, torch.float32) is None
    assert part(2, 60, torch.bfloat16) is None
    monkeypatch.setattr(triton_tiles, "copies_in_bulk", lambda device: False)
    assert part(2, 64, torch.bfloat16) is None
    hidden, weight = made(draw, 9, 300, 64, torch.bfloat16, device)
    vocabulary = TritonOps(torch.bfloat16).vocabulary(weight)
    assert isinstance(vocabulary, TritonVocabulary)
    logits, best = vocabulary.wanted_scores(hidden, torch.zeros(9, dtype=torch.int32, device=device))
    assert best is None
    assert_near(logits, hidden.double() @ weight.double().T, torch.bfloat16)
