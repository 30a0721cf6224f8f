"""Greedy rows get the index of the largest logit, the lowest of equals, whatever the shape of the logits."""

from __future__ import annotations

import pytest
import torch

from pellucid.plan import SamplingParams
from pellucid.runtime.sampler import Draw, sample

GREEDY = Draw(SamplingParams(temperature=0), seed=0, position=5, output_index=0)


def best_tokens(logits: torch.Tensor) -> torch.Tensor:
    return sample(logits, [GREEDY] * len(logits))


def lowest_of_the_largest(logits: torch.Tensor) -> list[int]:
    return [row.index(max(row)) for row in logits.tolist()]


@pytest.mark.parametrize("width", [1, 2, 15, 16, 17, 31, 32, 33, 64, 100, 1000, 20_000])
def test_the_largest(width: int, draw: torch.Generator) -> None:
    logits = torch.randn((9, width), generator=draw)
    for rows in (logits[:1], logits, torch.cat((logits, logits.flip(1)), 1)[:, :width], logits[::2]):
        assert best_tokens(rows).tolist() == lowest_of_the_largest(rows)


@pytest.mark.parametrize("width", [3, 16, 50, 130])
def test_the_lowest_of_equals(width: int, draw: torch.Generator) -> None:
    logits = torch.randint(-2, 2, (60, width), generator=draw).float()
    assert best_tokens(logits).tolist() == lowest_of_the_largest(logits)


def test_what_a_mask_leaves() -> None:
    logits = torch.full((3, 40), -torch.inf)
    logits[0, 39], logits[1, 17] = -3e38, torch.inf
    assert best_tokens(logits).tolist() == [39, 17, 0]


@pytest.mark.parametrize("width", [1, 16, 17, 40])
def test_a_row_that_is_no_numbers_still_gives_a_token_of_the_vocabulary(width: int) -> None:
    found = best_tokens(torch.full((2, width), torch.nan))
    assert all(0 <= token < width for token in found.tolist())


def test_no_rows() -> None:
    assert best_tokens(torch.empty(0, 40)).tolist() == []
