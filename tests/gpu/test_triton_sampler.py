"""The sampler in Triton against the one in torch: what it keeps, the noise it adds, the tokens it chooses."""

from __future__ import annotations

import random
from typing import Any

import pytest
import torch
import triton
import triton.language as tl

from hard_rows import rows_of, settings
from pellucid.errors import RequestError
from pellucid.plan import SamplingParams
from pellucid.runtime import noise, triton_sampler
from pellucid.runtime.controls import Controls
from pellucid.runtime.sampler import Draw, column, forbid_stops, keep_likely, sample
from pellucid.runtime.triton_noise import gumbel_noise, random_bits, stream_key
from pellucid.runtime.triton_sampler import most_score

DIGITS = 1e-5
"""Scores and masses that are nearer to each other than this may change places."""
LINES = 12


def draw(position: int = 10, seed: int = 1, output_index: int = 5, **params: Any) -> Draw:
    return Draw(SamplingParams(**params), seed, position, output_index)


class Chooser:
    """Controls whose lines are handed out in no order, and what is chosen with them."""

    def __init__(self, device: torch.device, forbidden_width: int = 4) -> None:
        self.device = device
        self.controls = Controls(LINES, forbidden_width, device)

    def __call__(
        self,
        logits: torch.Tensor,
        draws: list[Draw | None],
        eos_token_ids: tuple[int, ...] = (),
        best: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """[S] tokens; a draw of None is a padding row."""
        given = [d for d in draws if d is not None]
        places = random.Random(len(draws)).sample(range(LINES), len(given))
        self.controls.put(places, [self.controls.record(d, eos_token_ids) for d in given])
        self.places, left = places, iter(places)
        lines = torch.tensor([-1 if d is None else next(left) for d in draws], dtype=torch.int32)
        positions = torch.tensor([0 if d is None else d.position for d in draws], dtype=torch.int32)
        out = torch.full((len(draws),), -7, device=self.device)
        on_device = [tensor.to(self.device) for tensor in (logits, lines, positions)]
        triton_sampler.choose(*on_device, self.controls, out, None if best is None else best.to(self.device))
        return out.cpu()

    def least(self) -> torch.Tensor:
        """The lowest logits kept, of the rows chosen for last."""
        return self.controls.least.cpu()[self.places]


@pytest.fixture
def choose(device: torch.device) -> Chooser:
    return Chooser(device)


def same_but_for_rounding(scores: torch.Tensor, mine: torch.Tensor, kept: torch.Tensor, p: SamplingParams) -> bool:
    """Whether the row keeps the same, or the tokens in dispute are those whose place is at top_p to the last digits: of
    a sum, and of the scores, which torch rounds before it makes masses of them."""
    if torch.equal(mine, kept):
        return True
    after_min_p_and_top_k = keep_likely(scores[None].clone(), [SamplingParams(top_k=p.top_k, min_p=p.min_p)])[0]
    weights = after_min_p_and_top_k.double().softmax(0)
    close = DIGITS + 2**-23 * scores[scores.isfinite()].abs().max()
    return all(abs(weights[scores > score].sum() - p.top_p) < close for score in scores[mine != kept])


@pytest.mark.parametrize("programs", [1536, 20, 4])
@pytest.mark.parametrize("width", [1, 17, 700, 2603])
def test_filters_and_tokens_are_those_of_torch(
    choose: Chooser, width: int, programs: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nine rows of any settings at once, so that all kinds of rows meet, in parts of 512 to 16,384 tokens."""
    monkeypatch.setattr(triton_sampler, "PROGRAMS", programs)
    rng = random.Random(1000 * width + programs)
    logits = rows_of(rng, 9, width)
    draws = [Draw(settings(rng, width), rng.getrandbits(64), position, 0) for position in range(9)]
    tokens, least = choose(logits, draws), choose.least()
    scores = logits / column([d.temperature for d in draws], logits)
    left = keep_likely(scores.clone(), [d.sampling for d in draws])
    noisy = left + noise.gumbel_noise([d.key for d in draws], width, logits.device)
    for row, d in enumerate(draws):
        p = d.sampling
        if p.top_p < 1 or p.min_p or 0 < p.top_k < width:
            mine = scores[row] >= least[row] / d.temperature
            assert same_but_for_rounding(scores[row], mine & scores[row].isfinite(), left[row].isfinite(), p), (row, p)
        close = DIGITS + 2e-7 * noisy[row].amax().abs()
        assert noisy[row].amax() - noisy[row, tokens[row]] <= close, (row, p)


def test_nearly_all_tokens_are_the_very_same(choose: Chooser) -> None:
    """A difference is for the last digits: of 36 draws there should be none."""
    rng = random.Random(5)
    different = 0
    for _ in range(4):
        logits = 3 * torch.randn(9, 1000, generator=torch.Generator().manual_seed(rng.getrandbits(32)))
        draws = [draw(i, rng.getrandbits(64), top_p=rng.choice([1.0, 0.9]), top_k=10 * i) for i in range(9)]
        different += int((choose(logits, draws) != sample(logits.clone(), draws, compiled=False)).sum())
    assert different <= 1


@pytest.mark.parametrize("temperature", [0.0, 9.9999999e-6])
@pytest.mark.parametrize("programs", [1536, 4])
def test_greedy_takes_the_best_and_of_equals_the_lowest_id(
    choose: Chooser, temperature: float, programs: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Equals in one tile, in two tiles, in two programs' parts, and zeros of both signs."""
    monkeypatch.setattr(triton_sampler, "PROGRAMS", programs)
    logits = torch.randn(5, 5003, generator=torch.Generator().manual_seed(2))
    logits[1] = 0
    logits[2, [4900, 700, 512, 513]] = 50
    logits[3] = -1
    logits[3, 20], logits[3, 4000] = -0.0, 0.0
    logits[4] = -torch.inf
    tokens = choose(logits, [draw(temperature=temperature)] * 5)
    assert tokens.tolist() == [logits[0].argmax().item(), 0, 512, 20, 0]


def best_of_parts(logits: torch.Tensor, columns: int) -> torch.Tensor:
    """[S, parts] the highest key of each part, as the kernel that makes the logits leaves it."""
    bits = (logits + 0.0).view(torch.int32)
    bits = bits ^ ((bits >> 31) & triton_sampler.LAST_ID.value)
    keys = (bits.long() << 32) | (torch.arange(logits.shape[1]) ^ triton_sampler.LAST_ID.value)
    return torch.stack([part.amax(1) for part in keys.split(columns, 1)], 1)


@pytest.mark.parametrize("columns", [1, 128, 700])
def test_rows_that_take_the_best_need_no_logits_if_it_is_known(choose: Chooser, columns: int) -> None:
    """Others, those below min_tokens among them, choose as if it were not. More parts than one look takes, too."""
    logits = torch.randn(7, 5003, generator=torch.Generator().manual_seed(8))
    logits[0, 5000] = 8
    logits[4, [17, 300, 4000]] = 9
    kinds = [
        {"temperature": 0},
        {},
        {"temperature": 0, "min_tokens": 9},
        {"top_k": 3},
        {"temperature": 0},
        {"top_p": 0.4},
    ]
    draws = [*[draw(position=40 + i, **kind) for i, kind in enumerate(kinds)], None]
    banned = (int(logits[2].argmax()),)
    expected = choose(logits, draws, banned)
    assert expected[2] != banned[0]
    best = best_of_parts(logits, columns)
    for row in (0, 4):
        logits[row] = torch.nan
    assert choose(logits, draws, banned, best).tolist() == expected.tolist()
    assert expected[[0, 4]].tolist() == [5000, 17]


def test_equal_tokens_stay_or_go_together(choose: Chooser) -> None:
    logits = torch.tensor([[3.0, 2, 2, 2, 1], [0.0, -1, -0.0, -2, -3]])
    choose(logits, [draw(top_k=2), draw(top_k=1)])
    assert choose.least().tolist() == [2, 0]
    choose(logits, [draw(top_p=0.6), draw(min_p=1)])
    assert choose.least().tolist() == [2, 0]


@pytest.mark.parametrize("temperature", [1e-5, 0.01, 1e30, 1e300])
@pytest.mark.parametrize("params", [{}, {"top_k": 3}, {"top_p": 0.7}])
def test_extreme_temperatures(choose: Chooser, temperature: float, params: dict[str, Any]) -> None:
    logits = 2e4 * torch.randn(9, 1000, generator=torch.Generator().manual_seed(3))
    draws = [draw(position=i, temperature=temperature, **params) for i in range(9)]
    assert torch.equal(choose(logits, draws), sample(logits.clone(), draws, compiled=False))


@pytest.mark.parametrize("params", [{"top_p": 1e-50}, {"top_k": 3, "top_p": 1e-50}, {"min_p": 1e-50, "top_p": 1e-9}])
def test_a_top_p_too_small_for_float32_keeps_the_best(choose: Chooser, params: dict[str, Any]) -> None:
    logits = torch.randn(9, 1000, generator=torch.Generator().manual_seed(4))
    assert torch.equal(choose(logits, [draw(position=i, **params) for i in range(9)]), logits.argmax(-1))


@pytest.mark.parametrize("params", [{"temperature": 0}, {}, {"top_k": 2}, {"top_p": 0.5}, {"min_p": 0.5}])
def test_below_min_tokens_no_stop_token_is_sampled(choose: Chooser, params: dict[str, Any]) -> None:
    """Outputs 0, 1, 2 of three are below the minimum; output 3 is free to stop."""
    logits = torch.zeros(4, 1500)
    logits[:, [7, 1400, 9]] = torch.tensor([90.0, 80, 70])
    logits[:, [4, 600]] = torch.tensor([50.0, 20])
    stops = SamplingParams(min_tokens=3, stop_token_ids=(7, 9), **params)
    draws = [Draw(stops, 1, 10 + i, i) for i in range(4)]
    assert choose(logits, draws, (1400,)).tolist() == [4, 4, 4, 7]
    forbid_stops(logits, draws, (1400,))
    assert torch.equal(choose(logits, draws), sample(logits.clone(), draws, compiled=False))


def test_padding_rows_get_token_0_whatever_their_logits_are(choose: Chooser) -> None:
    logits = torch.randn(9, 700, generator=torch.Generator().manual_seed(6))
    logits[3:6] = torch.tensor([torch.nan, torch.inf, -torch.inf]).unsqueeze(1)
    draws: list[Draw | None] = [draw(0), draw(1, top_p=0.5), draw(2, temperature=0), None, None, None, draw(6), None]
    tokens = choose(logits[:8], draws)
    wanted = sample(logits[[0, 1, 2, 6]], [d for d in draws if d is not None], compiled=False)
    assert tokens[[0, 1, 2, 6]].tolist() == wanted.tolist()
    assert not tokens[[3, 4, 5, 7]].any()


def test_what_is_no_number_gives_a_token_of_the_vocabulary(choose: Chooser) -> None:
    logits = torch.full((9, 700), torch.nan)
    logits[5:, ::3] = torch.inf
    draws = [draw(i, **params) for i, params in enumerate([{"temperature": 0}, {}, {"top_k": 5}, {"top_p": 0.5}] * 2)]
    assert all(0 <= token < 700 for token in choose(logits[:8], draws).tolist())


def test_logits_may_be_a_part_of_a_wider_tensor_and_stay_as_they_are(device: torch.device) -> None:
    wide = 3 * torch.randn(9, 1100, generator=torch.Generator().manual_seed(8)).to(device)
    before, logits = wide.clone(), wide[:, 60:1060]
    choose = Chooser(device)
    controls, out = choose.controls, torch.empty(9, dtype=torch.int64, device=device)
    draws = [draw(i, temperature=float(i % 2), top_k=4 * (i % 3)) for i in range(9)]
    controls.put(range(9), [controls.record(d) for d in draws])
    rows = torch.arange(9, dtype=torch.int32, device=device)
    triton_sampler.choose(logits, rows, rows, controls, out)
    assert torch.equal(out.cpu(), sample(logits.cpu().clone(), draws, compiled=False))
    assert torch.equal(wide, before)


@pytest.mark.parametrize(("rows", "vocab_size"), [(1, 1), (1, 49_152), (9, 49_152), (256, 49_152), (1, 151_936)])
def test_parts_cover_the_vocabulary_with_programs_enough(rows: int, vocab_size: int) -> None:
    part = triton_sampler.part_size(rows, vocab_size)
    assert part % triton_sampler.TILE == 0
    programs = rows * triton.cdiv(vocab_size, part)
    assert min(triton_sampler.PROGRAMS, rows * vocab_size / 512) / 2 <= programs <= 2 * triton_sampler.PROGRAMS


def test_a_record_tells_apart_what_float32_does_not_and_refuses_what_has_no_room(device: torch.device) -> None:
    controls = Controls(1, 2, device)
    assert len(controls.record(draw())) == controls.width
    assert controls.record(draw(temperature=9.9999999e-6))[0] == 0 != controls.record(draw(temperature=1e-5))[0]
    assert controls.record(draw(top_k=2**40, max_tokens=None, min_tokens=2**40), (5,))[-2:] == (5, -1)
    controls.record(draw(stop_token_ids=(1, 2, 3)))
    with pytest.raises(RequestError, match=r"3 tokens may not be sampled before min_tokens=1 and there is room for 2"):
        controls.record(draw(stop_token_ids=(1, 2), min_tokens=1), (3,))


@triton.jit
def write_noise(seeds, positions, bits, gumbel, width, TILE: tl.constexpr):
    row = tl.program_id(0)
    key = stream_key(tl.load(seeds + row), tl.load(positions + row))
    token_ids = tl.arange(0, TILE)
    at, inside = row * width + token_ids, token_ids < width
    numbers = random_bits(key, token_ids)
    tl.store(bits + at, numbers.to(tl.int64, bitcast=True), mask=inside)
    tl.store(gumbel + at, gumbel_noise(numbers), mask=inside)


def test_the_bits_are_those_of_torch_and_the_noise_but_for_its_last_digits(device: torch.device) -> None:
    rng, n, width = random.Random(9), 100, 1000
    seeds = [0, 1, -1, 2**63, 2**64 - 1, noise.GAMMA] + [rng.getrandbits(64) for _ in range(n - 6)]
    positions = [0, 2**31 - 1] + [rng.randrange(40_000) for _ in range(n - 2)]
    keys = [noise.stream_key(*row) for row in zip(seeds, positions, strict=True)]
    mixed = torch.tensor([noise.signed(noise.mix(seed)) for seed in seeds], device=device)
    bits = torch.empty(n, width, dtype=torch.int64, device=device)
    gumbel = torch.empty(n, width, device=device)
    places = torch.tensor(positions, dtype=torch.int32, device=device)
    write_noise[(n,)](mixed, places, bits, gumbel, width, TILE=1024)
    cpu = torch.device("cpu")
    assert torch.equal(bits.cpu(), noise.random_bits(keys, width, cpu))
    torch.testing.assert_close(gumbel.cpu(), noise.gumbel_noise(keys, width, cpu), rtol=5e-7, atol=5e-7)


@triton.jit
def write_scores(logits, bits, limits, scores, temperature, least, TILE: tl.constexpr):
    at = tl.program_id(0) * TILE + tl.arange(0, TILE)
    numbers, x = tl.load(bits + at).to(tl.uint64, bitcast=True), tl.load(logits + at)
    tl.store(limits + at, most_score(x, numbers, 1 / temperature, least))
    tl.store(scores + at, tl.div_rn(x, temperature) + gumbel_noise(numbers))


@pytest.mark.parametrize("temperature", [1e-5, 0.6, 1.0, 3.0, 1e30])
def test_no_score_is_above_what_decides_whether_it_is_worth_calculating(
    device: torch.device, temperature: float
) -> None:
    """Bits of all magnitudes; where the noise is large, the two are near to each other: else every tile is worth it."""
    generator = torch.Generator().manual_seed(11)
    bits = torch.randint(-(2**63), 2**63 - 1, (64, 1024), generator=generator)
    bits = bits >> torch.arange(64).unsqueeze(1) & 2 ** (63 - torch.arange(64).unsqueeze(1)) - 1
    bits[0, :3] = torch.tensor([-1, -(2**63), 0])
    logits = torch.randn(64, 1024, generator=generator) * 10 ** torch.linspace(-3, 4, 1024)
    limits, scores = torch.empty(2, 64, 1024, device=device)
    write_scores[(64,)](
        logits.to(device), bits.to(device), limits, scores, temperature, -torch.inf, TILE=1024, num_warps=1
    )
    assert (limits >= scores).all()
    likely = (limits - scores)[5:15, :500] - 2e-6 * scores[5:15, :500].abs()
    assert likely.max() < 0.1
