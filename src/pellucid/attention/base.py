"""What an attention backend is: one verb, and a check that it can do what it is asked."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar

import torch

from pellucid.attention.layout import StepLayout
from pellucid.attention.storage import KVStorage


class AttentionBackend(ABC):
    """Causal attention of one layer, through block tables.

    ``batch_invariant``: a token's result is the same to the last bit, however its prompt is cut into chunks and
    whatever else is computed in the same step.
    """

    name: ClassVar[str]
    batch_invariant: ClassVar[bool] = False

    @abstractmethod
    def check(
        self, block_size: int, head_dim: int, heads: int, kv_heads: int, dtype: torch.dtype, device: torch.device
    ) -> None:
        """Raise `ConfigError` if this backend cannot run these sizes, `KernelError` if not on this device.

        Allocates nothing.
        """

    @abstractmethod
    def forward(
        self, layer: int, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, kv: KVStorage, layout: StepLayout
    ) -> torch.Tensor:
        """Write the step's K and V to their slots, then attend: [T, heads, head_dim] like ``q``.

        ``q`` is [T, heads, head_dim], ``k`` and ``v`` are [T, kv_heads, head_dim]; query head ``h`` reads
        KV head ``h // (heads // kv_heads)``, and scores are scaled by ``head_dim ** -0.5``. All of the
        step's K and V are written before any is read, so a request may share a block that another
        request fills in the same step. Rows of padding are zeros.
        """
