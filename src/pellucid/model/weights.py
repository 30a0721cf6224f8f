"""Where a model's tensors come from: what every source offers, the check before loading, and made-up weights."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping
from typing import Protocol

import torch

from pellucid.errors import ModelError
from pellucid.ops import Quantised

Shape = tuple[int, ...]

_GAINS = {"embed_tokens": 0.1, "q_proj": 2.0, "lm_head": 4.0}


class Weights(Protocol):
    """A source of named tensors. Names are those of Hugging Face checkpoints, whatever the file calls them.

    ``origin`` names the file or folder in messages. ``shapes`` says what is there without reading it;
    ``copy_to`` fills ``out``, a contiguous tensor of that shape, of any floating type and on any device;
    ``stored`` gives a matrix as it is kept if that is in 4 or 8 bits, else None.
    """

    origin: str
    shapes: Mapping[str, Shape]

    def copy_to(self, name: str, out: torch.Tensor) -> None: ...

    def stored(self, name: str) -> Quantised | None: ...


def check(weights: Weights, expected: Mapping[str, Shape], ignored: frozenset[str] = frozenset()) -> None:
    """Raise `ModelError` unless ``weights`` hold exactly the ``expected`` tensors; ``ignored`` may be there too."""
    missing = [name for name in expected if name not in weights.shapes]
    if missing:
        more = f" (and {len(missing) - 1} more of {len(expected)})" if len(missing) > 1 else ""
        raise ModelError(f"{weights.origin}: the tensor {missing[0]!r} is missing{more}.")
    for name, shape in expected.items():
        if weights.shapes[name] != shape:
            raise ModelError(
                f"{weights.origin}: the tensor {name!r} has shape {list(weights.shapes[name])}, "
                f"but the model's configuration asks for {list(shape)}."
            )
    for name in weights.shapes:
        if name not in expected and name not in ignored and not name.endswith(".rotary_emb.inv_freq"):
            raise ModelError(
                f"{weights.origin}: the tensor {name!r} has no place in this architecture; "
                "leaving it out would change the model's answers."
            )


class RandomWeights:
    """Made-up weights that are the same on every machine for a seed, whatever order they are read in.

    Matrices keep the variance of what passes through them, so a model of any depth stays finite; norms are 1
    and biases 0. `_GAINS` make the answers good to test with: they hang on the whole context, not on the last
    token alone, and the best token leads by far more than rounding errors.

    Only integers come from the generator, and one multiplication is rounded the same everywhere, while
    torch.randn depends on the processor's vector width.
    """

    origin = "random weights"

    def __init__(self, shapes: Mapping[str, Shape], seed: int) -> None:
        self.shapes = shapes
        self._seed = seed

    def copy_to(self, name: str, out: torch.Tensor) -> None:
        if out.ndim == 1:
            out.fill_(0 if name.endswith("bias") else 1)
            return
        kind = name.split(".")[-2]
        fan_in = 1 if kind == "embed_tokens" else out.shape[-1]
        self._fill(out, _GAINS.get(kind, 1.0) * math.sqrt(3 / fan_in), self._key(name))

    def _key(self, name: str) -> int:
        digest = hashlib.sha256(f"{self._seed}/{name}".encode()).digest()
        return int.from_bytes(digest[:7], "little")

    def _fill(self, out: torch.Tensor, most: float, key: int) -> None:
        """Fill ``out`` with numbers from -``most`` to ``most``, all equally likely."""
        generator = torch.Generator().manual_seed(key)
        integers = torch.empty(out.shape, dtype=torch.int16).random_(-32768, 32768, generator=generator)
        out.copy_(integers.float() * (most / 32768))

    def stored(self, name: str) -> None:
        """Nothing here is quantised."""


class DeviceWeights(RandomWeights):
    """The same distributions, drawn on the device where they will stay.

    A seed gives the same weights again on the same kind of device, and not those of `RandomWeights`.
    """

    def _fill(self, out: torch.Tensor, most: float, key: int) -> None:
        out.uniform_(-most, most, generator=torch.Generator(out.device).manual_seed(key))


def dummy_weights(shapes: Mapping[str, Shape], seed: int, device: torch.device) -> RandomWeights:
    """Made-up weights for ``device``, had quickly: on a CPU those that every machine has for ``seed``."""
    return (RandomWeights if device.type == "cpu" else DeviceWeights)(shapes, seed)
