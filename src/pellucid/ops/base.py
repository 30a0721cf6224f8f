"""What a set of operations offers to a model, so that the same model runs in plain torch and in compiled kernels."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, NamedTuple, Protocol

import torch

from pellucid.ops.matrix import Matrix

if TYPE_CHECKING:
    from pellucid.attention import AttentionBackend, KVStorage, StepLayout


class Linear(Protocol):
    """A weight matrix [out, in], ready to be multiplied with. ``nbytes`` is what it holds."""

    nbytes: int

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """[T, in] to [T, out], of the type of ``x``."""

    def add_to(self, residual: torch.Tensor, x: torch.Tensor) -> None:
        """Add the product of ``x`` [T, in] to ``residual`` [T, out], in place."""


class Scores(NamedTuple):
    """What a model says of R next tokens, where it may know which of its scores are wanted."""

    logits: torch.Tensor
    """float32 [R, tokens]; if ``best`` is there, rows that are not wanted may hold anything."""
    best: torch.Tensor | None
    """int64 [R, parts]: of each part of the vocabulary the best score and its token, larger numbers for better ones
    (see `pellucid.ops.triton_vocabulary.sort_key`); of every row. None if they were not looked for: then all logits
    are there."""


class Vocabulary(Protocol):
    """A matrix [tokens, hidden]: one row a token, to begin with (embedding) or to end with (scores)."""

    nbytes: int

    def rows(self, ids: torch.Tensor) -> torch.Tensor:
        """The rows ``ids`` ([T] int64): [T, hidden], of the type that the model runs in."""

    def scores(self, hidden: torch.Tensor) -> torch.Tensor:
        """[T, hidden] times every row: float32 [T, tokens]."""


class Gated(Protocol):
    """Two matrices [inner, in] of which the one gates the other."""

    nbytes: int

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """``silu(gate · x) · (up · x)``: [T, in] to [T, inner]."""


@dataclass(frozen=True)
class Layer:
    """The weights of one decoder layer: q, k and v are one matrix, and so are gate and up."""

    input_norm: torch.Tensor
    qkv: Linear
    q_norm: torch.Tensor | None
    k_norm: torch.Tensor | None
    output: Linear
    mlp_norm: torch.Tensor
    gate_up: Gated
    down: Linear


class Heads(NamedTuple):
    """Query heads, KV heads, and numbers a head."""

    queries: int
    keys: int
    dim: int


class Decoder(Protocol):
    """All layers at once, attention included: that of the backend whose name is ``attention``."""

    attention: str

    def __call__(
        self,
        x: torch.Tensor,
        cos: torch.Tensor,
        sin: torch.Tensor,
        kv: KVStorage,
        layout: StepLayout,
        attention: AttentionBackend,
        wanted: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """What leaves the last layer, of ``x`` [T, hidden] that enters the first and is overwritten: of the tokens
        ``wanted`` [R] int64, or of all.

        ``cos`` and ``sin`` are float32 [T, D/2]; K and V go to ``kv`` and are read there as ``layout`` says,
        by ``attention``, or by what is the same.
        """


class Ops(ABC):
    """One way to compute. ``why`` says, for a person, what it is and why it was chosen.

    ``batch_invariant``: a token's numbers are the same to the last bit, whatever else is computed in the same step.
    """

    name: ClassVar[str]
    batch_invariant: ClassVar[bool] = False

    def __init__(self, dtype: torch.dtype, why: str = "") -> None:
        self.dtype, self.why = dtype, why

    def folded(self, norm: torch.Tensor, parts: Sequence[Matrix]) -> tuple[torch.Tensor, Sequence[Matrix]]:
        """The weights of a norm and the matrices it comes before, as they will be asked for: the two, or ones and the
        matrices with the norm's weights in them."""
        return norm, parts

    @abstractmethod
    def linear(self, parts: Sequence[Matrix], bias: torch.Tensor | None = None) -> Linear:
        """The matrix whose rows are those of ``parts``; ``bias`` [out] is added to every product."""

    @abstractmethod
    def gated(self, gate: Matrix, up: Matrix) -> Gated:
        """``gate`` and ``up`` are [inner, in]."""

    @abstractmethod
    def vocabulary(self, matrix: Matrix) -> Vocabulary:
        """``matrix`` is [tokens, hidden]."""

    @abstractmethod
    def rms_norm(self, x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
        """Root-mean-square norm over the last axis of ``x``, computed in float32, times ``weight``."""

    def angles(self, positions: torch.Tensor, frequencies: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """cos and sin, float32 [T, D/2] each, of ``positions`` ([T] int64) times ``frequencies`` (float32 [D/2])."""
        angles = positions[:, None].float() * frequencies
        return angles.cos(), angles.sin()

    @abstractmethod
    def rotate(self, heads: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> None:
        """Rotate each pair (i, i + D/2) of ``heads`` [T, H, D] by its angle, in place.

        The heads of one token lie side by side; ``cos`` and ``sin`` are float32 [T, D/2].
        """

    def scores(self, head: Vocabulary, x: torch.Tensor, norm: torch.Tensor, eps: float) -> torch.Tensor:
        """The end of a model: `rms_norm` of ``x`` [T, hidden] with the weights ``norm``, then scores of ``head``."""
        return head.scores(self.rms_norm(x, norm, eps))

    def wanted_scores(
        self, head: Vocabulary, x: torch.Tensor, norm: torch.Tensor, eps: float, wanted: torch.Tensor
    ) -> Scores:
        """The same of the rows where ``wanted`` [T] int32 is not 0 and the best of all rows; or of all rows."""
        return Scores(self.scores(head, x, norm, eps), None)

    def decoder(self, layers: Sequence[Layer], heads: Heads, eps: float) -> Decoder | None:
        """The whole of ``layers`` in one call, for operations that can; None for those that go one by one."""
        return None
