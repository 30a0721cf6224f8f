"""The loads of a soak for a vLLM: ours, stretched until their blocks are as large as its own, several to an engine."""

from __future__ import annotations

from msgspec.structs import replace

from pellucid.lab.load import Abort, Action, Add, Case, Settings, draw

ROUNDS = 20
"""So many rounds are played on one engine, as a vLLM takes seconds to start."""

SIZES = (8, 16)
"""Tokens of a block before it is stretched: with fewer a request would become long, and a soak slow."""


def draw_for_vllm(model: str, seed: int, number: int, block_size: int, *, asynchronous: bool) -> Case:
    """Round ``number`` of the soak of ``seed`` for engines with this block size: the same everywhere and always.

    Whatever vLLM has no option for is left at its default, nothing moves, and every request is greedy: rounding
    could decide between two draws. ``asynchronous`` engines are met only where vLLM has them.
    """
    drawn = draw(model, seed, -1 - number // ROUNDS).settings
    size = min(max(drawn.block_size, SIZES[0]), SIZES[-1])
    blocks = 1 - (-(drawn.num_gpu_blocks_override - 1) * drawn.block_size // size)
    plain = replace(drawn, block_size=size, num_gpu_blocks_override=blocks)
    case = draw(model, seed, number, plain)
    factor = max(1, block_size // size)
    actions = tuple(_stretched(action, factor) for action in case.actions if isinstance(action, Add | Abort))
    return Case(model, _settings(plain, block_size, factor, asynchronous=asynchronous), actions)


def _settings(drawn: Settings, block_size: int, factor: int, *, asynchronous: bool) -> Settings:
    return replace(
        drawn,
        block_size=block_size,
        reuse_policy=Settings.reuse_policy,
        shuffle_blocks=None,
        async_scheduling=drawn.async_scheduling and asynchronous,
        max_num_batched_tokens=drawn.max_num_batched_tokens * factor,
        max_num_seqs=min(drawn.max_num_seqs, drawn.max_num_batched_tokens * factor),
    )


def _stretched(action: Add | Abort, factor: int) -> Action:
    """Equal beginnings stay equal, and end at the same edges of blocks."""
    if isinstance(action, Abort):
        return action
    prompt = tuple(token + 256 * i for token in action.prompt for i in range(factor))
    return replace(action, prompt=prompt, seed=None)
