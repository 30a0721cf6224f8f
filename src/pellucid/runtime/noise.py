"""Random numbers that are a function of where they are used, not of what was drawn before.

SplitMix64 (Steele, Lea, Flood, "Fast Splittable Pseudorandom Number Generators", OOPSLA 2014; the
constants are those of Sebastiano Vigna's public-domain splitmix64.c) is a counter with a finaliser, so
the ``i``-th number of a stream needs no state. A stream is keyed by (seed, position); ``i`` is the token
id. The bits come from integer arithmetic modulo 2**64, hence are the same on every device; only the last digit
of the logarithms that make noise of them may differ.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

GAMMA = 0x9E3779B97F4A7C15
FIRST = 0xBF58476D1CE4E5B9
SECOND = 0x94D049BB133111EB
MASK = 2**64 - 1


def mix(z: int) -> int:
    """SplitMix64's finaliser: a bijection of 64-bit numbers in which every input bit reaches every output bit."""
    z &= MASK
    z = (z ^ z >> 30) * FIRST & MASK
    z = (z ^ z >> 27) * SECOND & MASK
    return z ^ z >> 31


def stream_key(seed: int, position: int) -> int:
    """The start of the stream of (seed, position), below 2**64; any integers will do.

    The outer mixing keeps neighbouring positions from having the same numbers one place apart; the
    inner one does as much for seeds that differ by a multiple of `GAMMA`.
    """
    return mix(mix(seed) + position * GAMMA)


def random_bits(keys: Sequence[int], width: int, device: torch.device) -> torch.Tensor:
    """The first ``width`` numbers of each stream: [len(keys), width] int64, all 64 bits random."""
    start = torch.tensor([signed(key) for key in keys], device=device).unsqueeze(1)
    counter = torch.arange(1, width + 1, device=device) * signed(GAMMA)
    z = start + counter
    z ^= z >> 30 & 2**34 - 1  # the mask makes torch's arithmetic shift a logical one
    z *= signed(FIRST)
    z ^= z >> 27 & 2**37 - 1
    z *= signed(SECOND)
    z ^= z >> 31 & 2**33 - 1
    return z


def gumbel_noise(keys: Sequence[int], width: int, device: torch.device) -> torch.Tensor:
    """Standard Gumbel noise [len(keys), width] float32: added to logits, its argmax is a draw from their softmax."""
    uniform = ((random_bits(keys, width, device) >> 11 & 2**53 - 1).float() + 0.5) * 2**-53
    # Below 1 even after rounding, else the noise would be -inf. Near 0, where draws are won, it keeps all its digits.
    exponential = -torch.log1p(-uniform.clamp(max=1 - 2**-24))
    return -torch.log(exponential)


def signed(number: int) -> int:
    """The same 64 bits as a two's complement number, which is what an int64 tensor holds."""
    return number - 2**64 if number >= 2**63 else number
