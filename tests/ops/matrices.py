"""Random matrices of every kind that a model may hold, exact products with them, and how far others may be from those.

The oracle is `PlainOps` in float64. ``slack`` is what float32 sums may lose; what is lost when a result
is rounded to its own type comes on top, in `assert_close`.
"""

from __future__ import annotations

from collections.abc import Sequence

import gguf
import torch

from pellucid.ops import Matrix, Ops, PlainOps, Quantised
from pellucid.ops.matrix import GROUP, numbers

EXACT = PlainOps(torch.float64)
UNIT = {torch.float32: 2.0**-24, torch.bfloat16: 2.0**-8}
"""What rounding to the nearest number of a type changes, at most, as a share of the number."""
KINDS = ("dense", "q4_0", "q4_1", "q8_0")


def random_matrix(kind: str, shape: tuple[int, int], dtype: torch.dtype, draw: torch.Generator) -> Matrix:
    """[out, in], of type ``dtype`` if it is dense; not centred at 0, so that the least weight of a group matters."""
    values = torch.randn(shape, generator=draw) / 2 + 0.2
    if kind == "dense":
        return values.to(dtype)
    packed = gguf.quants.quantize(values.numpy(), gguf.GGMLQuantizationType[kind.upper()])
    return Quantised(kind, torch.from_numpy(packed))  # type: ignore[arg-type]


def strided(x: torch.Tensor) -> torch.Tensor:
    """The same rows, further apart than they are long, NaN in between."""
    wide = torch.full((len(x), x.shape[1] + 6), torch.nan, dtype=x.dtype)
    wide[:, 2:-4] = x
    return wide[:, 2:-4]


def wide(parts: Sequence[Matrix]) -> torch.Tensor:
    """All rows of ``parts``, in float64."""
    return torch.cat([numbers(part).double() for part in parts])


def exact(parts: Sequence[Matrix], x: torch.Tensor) -> torch.Tensor:
    return EXACT.linear([wide(parts)])(x.double())


def slack(ops: Ops, parts: Sequence[Matrix], x: torch.Tensor) -> torch.Tensor:
    """How far the sums of ``ops`` may be from `exact`: [T, out] float64.

    A float32 sum of n products is off by at most n roundings of the sum of their magnitudes (Higham, "Accuracy and
    Stability of Numerical Algorithms", 2002, section 3.1); three more are for a group's scale, its least and the bias.
    """
    off = (x.shape[1] + 3) * UNIT[torch.float32] + _weight_roundings(ops, parts) * UNIT[torch.bfloat16]
    magnitudes = torch.cat([_magnitudes(part) for part in parts])
    return off * EXACT.linear([magnitudes])(x.double().abs())


def _weight_roundings(ops: Ops, parts: Sequence[Matrix]) -> int:
    """Roundings to bfloat16 between a quantised weight and the number that it is multiplied as."""
    kinds = {part.kind if isinstance(part, Quantised) else "dense" for part in parts}
    if kinds == {"dense"} or ops.dtype is torch.float32:
        return 0
    if len(kinds) > 1 or kinds == {"q8_0"}:
        return 0 if ops.name == "compiled" and kinds == {"q8_0"} else 1
    return 0 if ops.name == "compiled" else 3  # scale, middle, and their sum


def _magnitudes(matrix: Matrix) -> torch.Tensor:
    if not isinstance(matrix, Quantised):
        return matrix.double().abs()
    scale, least, q = matrix.parts()
    parts = scale.abs().unsqueeze(-1) * q.abs().view(*scale.shape, GROUP) + least.abs().unsqueeze(-1)
    return parts.flatten(1).double()


def assert_close(found: torch.Tensor, expected: torch.Tensor, slack: torch.Tensor, roundings: int = 1) -> None:
    """``found`` is ``expected`` (float64) but for ``slack`` and ``roundings`` to its own type, everywhere."""
    assert found.shape == expected.shape
    allowed = slack + roundings * UNIT[found.dtype] * (expected.abs() + slack)
    off = (found.double() - expected).abs()
    worst = int((off - allowed).nan_to_num(nan=torch.inf).argmax())
    assert (off <= allowed).all(), (
        f"{int((~(off <= allowed)).sum())} of {off.numel()} numbers are off; number {worst} is "
        f"{found.flatten()[worst]}, not {expected.flatten()[worst]}, off by more than {allowed.flatten()[worst]:.3g}"
    )
