"""The random numbers of `pellucid.runtime.noise` inside a Triton kernel: the same 64 bits, the same steps to the noise.

See there for where they come from. Only the last digits of the two logarithms may differ.
"""

from __future__ import annotations

import triton
import triton.language as tl

from pellucid.runtime import noise

GAMMA = tl.constexpr(noise.GAMMA)
FIRST = tl.constexpr(noise.FIRST)
SECOND = tl.constexpr(noise.SECOND)
UNIT = tl.constexpr(2**-53)
BELOW_ONE = tl.constexpr(1 - 2**-24)


@triton.jit
def mix(z):
    """SplitMix64's finaliser of uint64 numbers."""
    z = (z ^ (z >> 30)) * FIRST
    z = (z ^ (z >> 27)) * SECOND
    return z ^ (z >> 31)


@triton.jit
def stream_key(mixed_seed, position):
    """The start of the stream of a seed, already mixed (int64 or uint64), at a position: uint64."""
    return mix(mixed_seed.to(tl.uint64) + position.to(tl.uint64) * GAMMA)


@triton.jit
def random_bits(key, token_ids):
    """The numbers of a stream that belong to the tokens (int32): uint64. (Widened without a sign, which is cheaper.)"""
    return mix(key + (token_ids.to(tl.uint32) + 1).to(tl.uint64) * GAMMA)


@triton.jit
def gumbel_noise(bits):
    """Standard Gumbel noise, float32, made of random bits.

    log1p(x) is log(w) · x / (w - 1) for w = 1 + x as rounded, and x where that is 1: the digits lost in w are lost in
    both (W. Kahan's formula for calculators without log1p; see Goldberg, ACM Computing Surveys 23(1), 1991, theorem 4).
    """
    uniform = ((bits >> 11).to(tl.float32) + 0.5) * UNIT
    uniform = tl.minimum(uniform, BELOW_ONE)
    rest = 1 - uniform
    lost = tl.where(rest < 1, 1 - rest, 1.0)
    return -tl.log(tl.where(rest < 1, -tl.log(rest) * (uniform / lost), uniform))
