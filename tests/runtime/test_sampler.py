"""The sampler against a softmax that is counted, and against filters written once more in plain Python."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from pellucid.native import native
from pellucid.plan import SamplingParams
from pellucid.runtime import compiled_sampler, sampler
from pellucid.runtime.sampler import Draw, keep_likely, sample

VOCAB = 40


@pytest.fixture(autouse=True, params=["torch", "compiled"])
def path(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every test twice: with the kernels where there are any, and without."""
    if request.param == "torch":
        monkeypatch.setattr(compiled_sampler, "takes", lambda logits: False)
    elif native().kernels is None:
        pytest.skip(native().why)


def logits_of(rows: int, seed: int = 0, vocab: int = VOCAB) -> torch.Tensor:
    return 2 * torch.randn(rows, vocab, generator=torch.Generator().manual_seed(seed))


def draw(seed: int = 1, position: int = 10, **params: Any) -> Draw:
    return Draw(SamplingParams(**params), seed, position, output_index=5)


def survivors(logits: list[float], p: SamplingParams) -> set[int]:
    """Temperature, min-p, top-k, top-p on one row of distinct logits, in float64 and by hand."""
    weights = [math.exp(x / p.temperature) for x in logits]
    order = sorted(range(len(weights)), key=lambda i: -weights[i])
    order = [i for i in order if weights[i] >= p.min_p * weights[order[0]]]
    if p.top_k > 0:
        order = order[: p.top_k]
    total, before, kept = sum(weights[i] for i in order), 0.0, set()
    for i in order:
        if p.top_p < 1 and before >= p.top_p * total:
            break
        kept.add(i)
        before += weights[i]
    return kept


SETTINGS = [
    SamplingParams(),
    SamplingParams(temperature=0.7),
    SamplingParams(top_k=1),
    SamplingParams(top_k=7),
    SamplingParams(top_k=-1, top_p=0.5),
    SamplingParams(top_k=VOCAB + 5, top_p=0.9),
    SamplingParams(top_p=1e-6),
    SamplingParams(top_k=9, top_p=0.6),
    SamplingParams(min_p=0.05),
    SamplingParams(min_p=1.0),
    SamplingParams(min_p=0.02, top_k=12, top_p=0.8, temperature=1.7),
]


@pytest.mark.parametrize("seed", range(5))
def test_filters_keep_what_the_plain_calculation_keeps(seed: int) -> None:
    """All settings in one batch, so that rows with and without a filter meet."""
    logits = logits_of(len(SETTINGS), seed)
    scores = keep_likely(logits / torch.tensor([[p.temperature] for p in SETTINGS]), SETTINGS)
    for row, p in enumerate(SETTINGS):
        kept = set(scores[row].isfinite().nonzero().flatten().tolist())
        assert kept == survivors(logits[row].tolist(), p), p
        assert torch.equal(scores[row, list(kept)], logits[row, list(kept)] / p.temperature)


def test_equal_tokens_stay_or_go_together() -> None:
    logits = torch.tensor([[3.0, 2, 2, 2, 1]])
    for p in (SamplingParams(top_k=2), SamplingParams(top_p=0.6)):
        assert keep_likely(logits.clone(), [p]).isfinite().tolist() == [[True, True, True, True, False]]


def test_top_p_is_a_part_of_all_that_top_k_leaves_equals_included() -> None:
    """Top-2 leaves six tokens of these: the first has 0.35 of their mass, though 0.73 of that of two."""
    logits = torch.tensor([[2.0, 1, 1, 1, 1, 1, 0]])
    assert keep_likely(logits, [SamplingParams(top_k=2, top_p=0.6)]).isfinite().sum() == 6


def test_top_p_of_1_cuts_no_tail() -> None:
    """The running float32 sum of these probabilities passes 1 some 400 tokens before the end."""
    logits = 5 * torch.randn(997, generator=torch.Generator().manual_seed(1))
    params = [SamplingParams(top_k=996), SamplingParams(top_p=0.5)]
    assert keep_likely(logits.repeat(2, 1), params).isfinite().sum(1)[0] == 996


@pytest.mark.parametrize(
    "params",
    [
        SamplingParams(),
        SamplingParams(temperature=0.6),
        SamplingParams(top_k=8),
        SamplingParams(top_p=0.8),
        SamplingParams(min_p=0.05, temperature=1.5),
    ],
)
def test_draws_follow_the_softmax_of_what_is_kept(params: SamplingParams) -> None:
    """Pearson's chi-square over 20,000 positions stays below its 0.999 quantile (Wilson-Hilferty)."""
    logits, n = logits_of(1, seed=3), 20_000
    kept = sorted(survivors(logits[0].tolist(), params))
    expected = n * (logits[0, kept].double() / params.temperature).softmax(0)
    draws = [Draw(params, 77, position, position) for position in range(n)]
    counts = sample(logits.expand(n, VOCAB).clone(), draws).bincount(minlength=VOCAB)
    assert counts[kept].sum() == n
    rare = expected < 5
    observed, wanted = counts[kept][~rare].double(), expected[~rare]
    if rare.any():
        observed, wanted = (
            torch.cat([x[~rare], x[rare].sum(0, keepdim=True)]) for x in (counts[kept].double(), expected)
        )
    freedom = len(wanted) - 1
    limit = freedom * (1 - 2 / (9 * freedom) + 3.09 * math.sqrt(2 / (9 * freedom))) ** 3
    assert ((observed - wanted) ** 2 / wanted).sum() < limit


def test_a_seeded_row_does_not_depend_on_its_neighbours_or_its_place() -> None:
    logits = logits_of(40, vocab=500)
    draws = [
        draw(seed=i % 3, position=i, temperature=0.9, top_p=[1.0, 0.9][i % 2], top_k=[0, 50][i % 3 == 0])
        for i in range(40)
    ]
    draws[5] = draws[25] = draw(temperature=0)
    together = sample(logits.clone(), draws).tolist()
    alone = [sample(logits[i : i + 1].clone(), [draws[i]]).item() for i in range(40)]
    backwards = sample(logits.flip(0), draws[::-1]).flip(0).tolist()
    assert together == alone == backwards


def test_seed_and_position_both_change_the_noise() -> None:
    flat = torch.zeros(100, 1000)
    by_position = sample(flat.clone(), [draw(position=i) for i in range(100)]).unique().numel()
    by_seed = sample(flat.clone(), [draw(seed=i) for i in range(100)]).unique().numel()
    assert min(by_position, by_seed) > 85
    assert sample(flat, [draw()] * 100).unique().numel() == 1


@pytest.mark.parametrize("temperature", [0.0, 1e-6])
def test_greedy_takes_the_best_and_of_equals_the_lowest_id(temperature: float) -> None:
    logits = logits_of(3, vocab=30_000)
    logits[1] = 0
    logits[2, [29_000, 17, 512]] = 50
    assert sample(logits.clone(), [draw(temperature=temperature)] * 3).tolist() == [logits[0].argmax().item(), 0, 17]


def test_greedy_rows_make_no_noise(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    real = sampler.gumbel_noise

    def counted(keys: list[int], width: int, device: torch.device) -> torch.Tensor:
        asked.append(len(keys))
        return real(keys, width, device)

    monkeypatch.setattr(sampler, "gumbel_noise", counted)
    sampler.choose_tokens(logits_of(3), [draw(temperature=0), draw(), draw(temperature=0)], [1])
    sampler.choose_tokens(logits_of(3), [draw(temperature=0)] * 3, [])
    assert asked == [1]


@pytest.mark.parametrize("ignore_eos", [False, True])
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_below_min_tokens_no_stop_token_is_sampled(temperature: float, ignore_eos: bool) -> None:
    """Outputs 0, 1, 2 of three are below the minimum; output 3 is free to stop."""
    logits = torch.zeros(4, VOCAB)
    logits[:, [7, 8, 9]] = torch.tensor([90.0, 80, 70])
    logits[:, 4] = 50
    params = SamplingParams(min_tokens=3, stop_token_ids=(7, 9), temperature=temperature, ignore_eos=ignore_eos)
    draws = [Draw(params, 1, 10 + i, i) for i in range(4)]
    assert sample(logits, draws, eos_token_ids=(8,)).tolist() == [4, 4, 4, 7]


@pytest.mark.parametrize("temperature", [1e-5, 0.01, 1e30])
def test_extreme_temperatures_stay_finite(temperature: float) -> None:
    logits = logits_of(50) * 1e4
    tokens = sample(logits.clone(), [draw(position=i, temperature=temperature) for i in range(50)])
    assert torch.equal(tokens, logits.argmax(-1)) == (temperature < 1)


def test_a_temperature_beyond_float32_revives_no_forbidden_token() -> None:
    logits = torch.full((1, VOCAB), -torch.inf)
    logits[0, 30] = 5
    assert sample(logits, [draw(temperature=1e300)]).item() == 30


@pytest.mark.parametrize("params", [{"top_p": 1e-50}, {"top_k": 3, "top_p": 1e-50}, {"min_p": 1e-50, "top_p": 1e-9}])
def test_a_top_p_too_small_for_float32_keeps_the_best(params: dict[str, Any]) -> None:
    logits = logits_of(20)
    draws = [draw(position=i, **params) for i in range(20)]
    assert torch.equal(sample(logits.clone(), draws), logits.argmax(-1))


@pytest.mark.parametrize("params", [{"temperature": 0}, {}, {"top_k": 5}, {"top_p": 0.5}, {"min_p": 0.3, "top_p": 0.9}])
def test_what_is_no_finite_number_is_taken_where_it_is_largest(params: dict[str, Any]) -> None:
    """As torch's argmax has it: the first NaN, else the first infinity; without any score, token 0."""
    nan, inf = torch.nan, torch.inf
    logits = logits_of(6)
    logits[0, [33, 17, 39]] = torch.tensor([nan, nan, inf])
    logits[1, [9, 36, 4]] = torch.tensor([inf, inf, -inf])
    logits[2] = -inf
    logits[3, 1:] = -inf
    logits[4, :-1] = -inf
    logits[5, [38, 20]] = nan
    draws = [draw(position=i, **params) for i in range(6)]
    assert sample(logits, draws).tolist() == [17, 9, 0, 0, VOCAB - 1, 20]
