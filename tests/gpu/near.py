"""Random tensors, rows that lie apart, and how near a result must be to the exact one."""

from __future__ import annotations

import torch

UNIT = {torch.float32: 2.0**-19, torch.float16: 2.0**-10, torch.bfloat16: 2.0**-7}
"""Two roundings to the type; for float32, what the sums of these tests may lose."""


def random(
    shape: tuple[int, ...], draw: torch.Generator, dtype: torch.dtype, device: torch.device | str
) -> torch.Tensor:
    return torch.randn(shape, generator=draw).to(device, dtype)


def strided(x: torch.Tensor) -> torch.Tensor:
    """The same rows, further apart than they are long, NaN in between."""
    wide = torch.full((len(x), x.shape[1] + 6), torch.nan, dtype=x.dtype, device=x.device)
    wide[:, 2:-4] = x
    return wide[:, 2:-4]


def apart(x: torch.Tensor) -> torch.Tensor:
    """The same rows, further apart than they are long, NaN in between; each begins at a multiple of 16 bytes."""
    wide = torch.full((len(x), x.shape[1] + 16), torch.nan, dtype=x.dtype, device=x.device)
    wide[:, 8:-8] = x
    return wide[:, 8:-8]


def assert_near(found: torch.Tensor, expected: torch.Tensor, dtype: torch.dtype | None = None, units: int = 4) -> None:
    """``found`` is ``expected`` (float64, numbers about 1) but for some roundings to ``dtype`` or its own type."""
    unit = units * UNIT[dtype or found.dtype]
    torch.testing.assert_close(found.double(), expected, rtol=unit, atol=unit)
