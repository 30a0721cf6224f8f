from __future__ import annotations

import random

import pytest
import torch

from pellucid.runtime.noise import GAMMA, gumbel_noise, mix, random_bits, stream_key

CPU = torch.device("cpu")


def test_known_numbers_of_splitmix64() -> None:
    """The first outputs of splitmix64.c for the seed 1234567, as published with it in several languages."""
    known = [6457827717110365317, 3203168211198807973, 9817491932198370423, 4593380528125082431, 16408922859458223821]
    assert [mix(1234567 + i * GAMMA) for i in range(1, 6)] == known


def test_tensors_hold_the_same_64_bits_as_python_integers() -> None:
    rng = random.Random(3)
    keys = [0, 1, 2**63 - 1, 2**63, 2**64 - 1] + [rng.getrandbits(64) for _ in range(20)]
    bits = random_bits(keys, 50, CPU)
    assert [[b % 2**64 for b in line] for line in bits.tolist()] == [
        [mix(k + i * GAMMA) for i in range(1, 51)] for k in keys
    ]


def test_streams_of_related_seeds_and_positions_share_no_number() -> None:
    keys = [stream_key(seed, position) for seed in (-1, 0, 1, 2, GAMMA, 2**40) for position in range(20)]
    bits = random_bits(keys, 500, CPU)
    assert bits.unique().numel() == bits.numel()


def test_noise_is_standard_gumbel() -> None:
    """The largest gap to the distribution function exp(-exp(-x)) stays below Kolmogorov's bound for p = 0.001."""
    noise = gumbel_noise([stream_key(5, p) for p in range(20)], 10_000, CPU).flatten().double().sort().values
    n = noise.numel()
    gap = (torch.exp(-torch.exp(-noise)) - (torch.arange(n) + 0.5) / n).abs().max()
    assert gap < 1.95 / n**0.5


@pytest.mark.parametrize("bits", [0, -1])
def test_the_extreme_bits_give_finite_noise(bits: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pellucid.runtime.noise.random_bits", lambda *_: torch.tensor([[bits]]))
    assert gumbel_noise([0], 1, CPU).isfinite().all()


def test_noise_does_not_depend_on_what_else_is_asked_for() -> None:
    alone = gumbel_noise([stream_key(9, 4)], 300, CPU)
    among = gumbel_noise([stream_key(8, 4), stream_key(9, 4), stream_key(9, 5)], 300, CPU)
    assert torch.equal(alone[0], among[1])
    assert not torch.equal(alone[0], among[0])
    assert not torch.equal(alone[0], among[2])
