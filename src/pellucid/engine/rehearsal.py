"""The largest step of an engine, run once on a pool of its own, to see what it needs beside weights and KV."""

from __future__ import annotations

from itertools import accumulate

import torch

from pellucid.attention import AttentionBackend, KVStorage, StepLayout
from pellucid.model import Model


@torch.inference_mode()
def rehearse(model: Model, attention: AttentionBackend, block_size: int, tokens: int, samples: int) -> None:
    """Prefill ``tokens`` tokens in one step, in requests as long as the model takes, and score ``samples`` of them.

    Their K and V go to a pool that is given up again. Sampling from the scores is not part of it.
    """
    config, device = model.config, model.device
    lengths = [min(config.max_position, tokens - at) for at in range(0, tokens, config.max_position)]
    blocks = [-(-length // block_size) for length in lengths]
    shape = (config.num_kv_heads, config.head_dim, model.dtype)
    storage = KVStorage(config.num_layers, sum(blocks) + 1, block_size, *shape, device)
    positions = torch.cat([torch.arange(length, device=device) for length in lengths])
    firsts = [1, *accumulate(blocks, initial=1)][1:-1]
    layout = StepLayout(
        query_start=torch.tensor([0, *accumulate(lengths)], dtype=torch.int32, device=device),
        context_lens=torch.tensor(lengths, dtype=torch.int32, device=device),
        block_tables=_tables(firsts, blocks).to(device),
        slots=torch.cat(
            [
                torch.arange(first * block_size, first * block_size + length, device=device)
                for first, length in zip(firsts, lengths, strict=True)
            ]
        ),
        max_query=max(lengths),
    )
    hidden = model.forward(torch.zeros_like(positions), positions, storage, layout, attention)
    model.wanted_scores(hidden[:samples], torch.zeros(samples, dtype=torch.int32, device=device))


def _tables(firsts: list[int], blocks: list[int]) -> torch.Tensor:
    """[R, most blocks of a request] int32: the ``blocks`` of each request from its first on, then 0."""
    tables = torch.zeros(len(blocks), max(blocks), dtype=torch.int32)
    for row, first, count in zip(tables, firsts, blocks, strict=True):
        row[:count] = torch.arange(first, first + count)
    return tables
