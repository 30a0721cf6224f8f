"""The compiled sampler against the one in torch: what it keeps, the noise it adds, the tokens it draws."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import pytest
import torch

from hard_rows import rows_of, settings
from pellucid.native import native
from pellucid.plan import SamplingParams
from pellucid.runtime import compiled_sampler, sampler
from pellucid.runtime.noise import FIRST, GAMMA, MASK, SECOND, gumbel_noise, mix
from pellucid.runtime.sampler import Draw, column, keep_likely

pytestmark = pytest.mark.skipif(native().kernels is None, reason=native().why)

CPU = torch.device("cpu")
DIGITS = 1e-5
"""Scores and masses that are nearer to each other than this may change places."""


def draw(position: int = 10, seed: int = 1, **params: Any) -> Draw:
    return Draw(SamplingParams(**params), seed, position, output_index=position)


def decide(logits: torch.Tensor, draws: list[Draw]) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Tokens, the lowest kept scores, and the scores that won: [rows] each."""
    decisions = torch.empty(len(draws), 2)
    tokens = compiled_sampler.draw_tokens(logits, draws, range(len(draws)), decisions)
    return tokens, *decisions.unbind(1)


def same_but_for_rounding(scores: torch.Tensor, least: torch.Tensor, kept: torch.Tensor, p: SamplingParams) -> bool:
    """Whether the row keeps the same, or the tokens in dispute are those whose place is at top_p to the last digits."""
    mine = scores >= least
    if torch.equal(mine, kept):
        return True
    after_min_p_and_top_k = keep_likely(scores[None].clone(), [SamplingParams(top_k=p.top_k, min_p=p.min_p)])[0]
    weights = after_min_p_and_top_k.double().softmax(0)
    disputed = scores[mine != kept]
    return all(abs(weights[scores > score].sum() - p.top_p) < DIGITS for score in disputed)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("width", [1, 15, 16, 17, 1000, 5003, 49_152])
def test_filters_and_tokens_are_those_of_torch(width: int, seed: int) -> None:
    rng = random.Random(1000 * width + seed)
    logits = rows_of(rng, 25, width)
    draws = [Draw(settings(rng, width), rng.getrandbits(64), position, 0) for position in range(25)]
    params = [d.sampling for d in draws]
    tokens, least, won = decide(logits, draws)
    scores = logits / column([d.temperature for d in draws], logits)
    left = keep_likely(scores.clone(), params)
    noisy = left + gumbel_noise([d.key for d in draws], width, CPU)
    for row, p in enumerate(params):
        assert same_but_for_rounding(scores[row], least[row], left[row].isfinite(), p), (row, p)
        close = DIGITS + 2e-7 * noisy[row].amax().abs()
        assert noisy[row].amax() - noisy[row, tokens[row]] <= close, (row, p)
        assert abs(won[row] - noisy[row, tokens[row]]) <= close, (row, p)


def test_nearly_all_tokens_are_the_very_same() -> None:
    """A difference is for the last digits: of 1,500 draws there should be none or one."""
    rng = random.Random(5)
    different = 0
    for _ in range(30):
        logits = 3 * torch.randn(50, 2000, generator=torch.Generator().manual_seed(rng.getrandbits(32)))
        draws = [draw(i, rng.getrandbits(64), top_p=rng.choice([1.0, 0.9]), top_k=i) for i in range(50)]
        different += int((decide(logits, draws)[0] != sampler.draw_tokens(logits, draws)).sum())
    assert different <= 1


@pytest.mark.parametrize("seed", [0, 2**64 - 1, -7])
def test_the_noise_of_every_token_is_that_of_torch(seed: int) -> None:
    """One token is possible in each row, so it wins with its own noise: 24 of the 53 random bits that make it."""
    width = 300
    logits = torch.full((width, width), -torch.inf).fill_diagonal_(0)
    draws = [draw(3, seed)] * width
    tokens, _, won = decide(logits, draws)
    expected = gumbel_noise([draws[0].key], width, CPU)[0]
    assert tokens.tolist() == list(range(width))
    torch.testing.assert_close(won, expected, rtol=3e-7, atol=3e-7)


def unmixed(bits: int) -> int:
    """The number of which `mix` makes these bits."""
    z = bits ^ bits >> 31 ^ bits >> 62
    z = z * pow(SECOND, -1, 2**64) & MASK
    z = z ^ z >> 27 ^ z >> 54
    z = z * pow(FIRST, -1, 2**64) & MASK
    return z ^ z >> 30 ^ z >> 60


@pytest.mark.parametrize("bits", [0, 2**11, 2**64 - 1, 2**64 - 2**40])
def test_the_extreme_bits_give_the_noise_of_torch(bits: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Beginning with 37.4 and ending with -2.8: nothing is infinite, and nothing is passed over."""
    key = unmixed(bits) - 21 * GAMMA & MASK
    assert mix(key + 21 * GAMMA) == bits
    monkeypatch.setattr(Draw, "key", property(lambda draw: key))
    logits = torch.full((1, 50), -torch.inf)
    logits[0, 20] = 0
    tokens, _, won = decide(logits, [draw()])
    assert tokens.item() == 20
    torch.testing.assert_close(won, gumbel_noise([key], 50, CPU)[:, 20], rtol=3e-7, atol=3e-7)


def test_equal_noise_and_score_give_the_lowest_id() -> None:
    """Scores so far from 0 that the noise is rounded away."""
    logits = torch.full((3, 100), 1e9)
    logits[1, :40] = logits[2, :99] = 0
    assert decide(logits, [draw(i) for i in range(3)])[0].tolist() == [0, 40, 99]


@pytest.fixture
def threads() -> Iterator[Any]:
    kernels = native().kernels
    assert kernels is not None
    yield kernels.set_threads
    kernels.set_threads(torch.get_num_threads())


def test_a_row_is_the_same_in_every_batch_with_every_number_of_threads(threads: Any) -> None:
    rng = random.Random(2)
    logits = rows_of(rng, 13, 3000)
    draws = [Draw(settings(rng, 3000), 4, position, 0) for position in range(13)]
    alone = [torch.stack(decide(logits[i : i + 1], [draws[i]])) for i in range(13)]
    for count in (1, 2, 3):
        threads(count)
        together = torch.stack(decide(logits, draws))
        assert torch.equal(together, torch.cat(alone, 1))
        assert torch.equal(torch.stack(decide(logits.flip(0), draws[::-1])).flip(1), together)


def test_rows_that_are_not_drawn_are_left_alone_and_strides_kept() -> None:
    """Greedy rows between random ones, in logits that are a part of a wider tensor."""
    wide = 3 * torch.randn(9, 1100, generator=torch.Generator().manual_seed(8))
    logits, before = wide[:, 60:1060], wide.clone()
    draws = [draw(i, temperature=float(i % 2)) for i in range(9)]
    tokens = compiled_sampler.choose_tokens(logits, draws, [1, 3, 5, 7])
    assert torch.equal(tokens, sampler.choose_tokens(logits, draws, [1, 3, 5, 7]))
    assert torch.equal(wide, before)
