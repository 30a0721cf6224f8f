"""Logits and settings that are hard on a sampler: whichever kernels choose, all are tried on them."""

from __future__ import annotations

import random

import torch

from pellucid.plan import SamplingParams


def settings(rng: random.Random, width: int) -> SamplingParams:
    """Each filter is on in half of them, at its extremes in some."""
    return SamplingParams(
        temperature=rng.choice([1.0, 1e-5, 0.01, 1e4, rng.uniform(0.1, 3)]),
        top_k=rng.choice([0, -1, 0, 1, width, width + 3, rng.randint(1, width), rng.randint(1, width)]),
        top_p=rng.choice([1.0, 1.0, 1e-9, 0.9999, rng.random() or 0.5, rng.random() or 0.5]),
        min_p=rng.choice([0.0, 0.0, 1.0, 0.1 * rng.random(), rng.random()]),
    )


def rows_of(rng: random.Random, rows: int, width: int) -> torch.Tensor:
    """Smooth rows, rows with many equals, flat ones, ones far from 0, rows with -inf, a steep geometric row."""
    generator = torch.Generator().manual_seed(rng.getrandbits(32))
    logits = torch.randn(rows, width, generator=generator)
    for row in logits:
        row *= rng.choice([0.01, 1, 3, 30])
        kind = rng.randrange(7)
        if kind == 0:
            row.copy_(row.round())
        elif kind == 1:
            row.fill_(rng.uniform(-5, 5))
        elif kind == 2:
            row += rng.choice([-1e6, -100, 100, 1e6])
        elif kind == 3:
            row[torch.randperm(width, generator=generator)[: rng.randrange(width)]] = -torch.inf
        elif kind == 4:
            row.copy_(-(2.0 ** (torch.arange(width) % 140 - 20)))
    return logits
