"""Attention in a compiled kernel that reads the pool through the block table, without copying a context together."""

from __future__ import annotations

import torch

from pellucid.attention.base import AttentionBackend
from pellucid.attention.layout import StepLayout
from pellucid.attention.reference import ReferenceAttention
from pellucid.attention.storage import KVStorage
from pellucid.errors import ConfigError, InvariantViolation
from pellucid.native import native

MOST_HEAD_DIM = 256


class CompiledAttention(AttentionBackend):
    """float32 and bfloat16 on processors with AVX-512; see kernels/src/attention.cpp.

    A token's result depends on its own position and context only: not on how a prefill is cut into
    chunks, and not on who else is in the batch.

    Raises `ConfigError` if the kernels cannot be had here.
    """

    name = "compiled"
    batch_invariant = True

    def __init__(self) -> None:
        if native().kernels is None:
            raise ConfigError(f"Compiled attention cannot be used: {native().why}; choose attention_backend='auto'.")
        native().module.set_threads(torch.get_num_threads())
        self._run = native().module.attention

    @staticmethod
    def missing(dtype: torch.dtype, device: torch.device, head_dim: int) -> str | None:
        """Why there is no kernel for this type and size here; None if there is one."""
        if head_dim > MOST_HEAD_DIM:
            return f"there are kernels for heads of up to {MOST_HEAD_DIM} numbers, not {head_dim}"
        return native().missing(dtype, device)

    def check(
        self, block_size: int, head_dim: int, heads: int, kv_heads: int, dtype: torch.dtype, device: torch.device
    ) -> None:
        ReferenceAttention().check(block_size, head_dim, heads, kv_heads, dtype, device)
        if head_dim > MOST_HEAD_DIM:
            raise ConfigError(
                f"Compiled attention takes heads of up to {MOST_HEAD_DIM} numbers, not {head_dim}; "
                "choose attention_backend='reference'."
            )

    def forward(
        self, layer: int, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, kv: KVStorage, layout: StepLayout
    ) -> torch.Tensor:
        tokens, heads, dim = q.shape
        if q.dtype is not kv.tensor.dtype or dim > MOST_HEAD_DIM:
            raise InvariantViolation(f"Queries are {q.dtype} with heads of {dim}, and the pool is {kv.tensor.dtype}.")
        out = torch.empty((tokens, heads, dim), dtype=q.dtype)
        k_pool, v_pool = kv.layer_addresses(layer)
        self._run(
            q.dtype is torch.bfloat16,
            q.data_ptr(),
            q.stride(0),
            k.data_ptr(),
            k.stride(0),
            v.data_ptr(),
            v.stride(0),
            k_pool,
            v_pool,
            out.data_ptr(),
            heads * dim,
            layout.slots.data_ptr(),
            layout.query_start.data_ptr(),
            layout.context_lens.data_ptr(),
            layout.block_tables.data_ptr(),
            layout.block_tables.stride(0),
            tokens,
            len(layout.context_lens),
            kv.block_size,
            heads,
            k.shape[1],
            dim,
        )
        return out
