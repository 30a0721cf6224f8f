"""The oracle: attention in plain torch, one request after the other."""

from __future__ import annotations

import torch
from torch.nn.functional import scaled_dot_product_attention

from pellucid.attention.base import AttentionBackend
from pellucid.attention.layout import StepLayout
from pellucid.attention.storage import KVStorage
from pellucid.errors import ConfigError
from pellucid.kv.block import check_block_size


class ReferenceAttention(AttentionBackend):
    """Gathers the context of each request through its block table and attends in float32.

    Slots that hold no token of the request are never part of a sum, not even with weight 0,
    so whatever an earlier owner left there (a NaN would survive the weight 0) cannot be seen.
    """

    name = "reference"

    def check(
        self, block_size: int, head_dim: int, heads: int, kv_heads: int, dtype: torch.dtype, device: torch.device
    ) -> None:
        check_block_size(block_size)
        if head_dim < 1 or kv_heads < 1 or heads < 1 or heads % kv_heads:
            raise ConfigError(
                f"{heads} query heads of {head_dim} numbers cannot share {kv_heads} KV heads evenly; "
                "the one count must be a multiple of the other."
            )

    def forward(
        self, layer: int, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, kv: KVStorage, layout: StepLayout
    ) -> torch.Tensor:
        k_pool, v_pool = kv.layer(layer)
        k_pool.flatten(0, 1)[layout.slots] = k
        v_pool.flatten(0, 1)[layout.slots] = v
        out = torch.zeros_like(q)
        bounds = layout.query_start.tolist()
        for row, context in enumerate(layout.context_lens.tolist()):
            if context:
                blocks = layout.block_tables[row, : -(-context // kv.block_size)]
                mine = slice(bounds[row], bounds[row + 1])
                out[mine] = attend(q[mine], gather(k_pool, blocks, context), gather(v_pool, blocks, context))
        return out


def gather(pool: torch.Tensor, blocks: torch.Tensor, context: int) -> torch.Tensor:
    """The first ``context`` tokens of a block table, contiguous: [context, kv_heads, head_dim]."""
    return pool.index_select(0, blocks).flatten(0, 1)[:context]


def attend(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """Causal attention of the last ``len(q)`` of ``len(k)`` tokens: [len(q), heads, head_dim] float32."""
    queries, context = len(q), len(k)
    # Query i stands at position context - queries + i and sees every token up to itself.
    mask = None
    if queries > 1:
        mask = torch.ones(queries, context, dtype=torch.bool, device=q.device).tril(context - queries)
    q, k, v = (x.float().transpose(0, 1).unsqueeze(0) for x in (q, k, v))  # [1, heads, tokens, head_dim]
    return scaled_dot_product_attention(q, k, v, attn_mask=mask, enable_gqa=True).squeeze(0).transpose(0, 1)
