"""What a decoder computes between its attentions: matrix products, norms, rotations; in plain torch, and faster."""

from pellucid.ops.base import Gated, Heads, Layer, Linear, Ops, Scores, Vocabulary
from pellucid.ops.matrix import Matrix, Quantised
from pellucid.ops.plain import PlainOps
from pellucid.ops.registry import choose_ops

__all__ = [
    "Gated",
    "Heads",
    "Layer",
    "Linear",
    "Matrix",
    "Ops",
    "PlainOps",
    "Quantised",
    "Scores",
    "Vocabulary",
    "choose_ops",
]
