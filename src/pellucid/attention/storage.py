"""The KV pool: one tensor, allocated once, in which every block of every layer lives for the life of the engine."""

from __future__ import annotations

import math
from collections.abc import Iterable

import torch

from pellucid.errors import ConfigError
from pellucid.pages import paged_bytes


class KVStorage:
    """Memory for ``num_blocks`` blocks of ``block_size`` tokens, block 0 included, in every layer.

    ``tensor`` has the shape [layers, 2, num_blocks, block_size, num_kv_heads, head_dim]; index 0 of its
    second dimension is K, index 1 is V. It is written to at once, so the memory is really had
    and not merely promised by the operating system. ``address`` and ``nbytes`` never change.

    Raises `ConfigError` for a size below 1 and for more memory than the device can give.
    """

    def __init__(
        self,
        layers: int,
        num_blocks: int,
        block_size: int,
        num_kv_heads: int,
        head_dim: int,
        dtype: torch.dtype,
        device: torch.device | str = "cpu",
    ) -> None:
        shape = (layers, 2, num_blocks, block_size, num_kv_heads, head_dim)
        if min(shape) < 1:
            raise ConfigError(
                f"Every size of a KV pool must be 1 or more, not {layers=}, {num_blocks=}, {block_size=}, "
                f"{num_kv_heads=}, {head_dim=}."
            )
        self.num_blocks = num_blocks
        self.block_size = block_size
        per_block = self.bytes_per_block(layers, block_size, num_kv_heads, head_dim, dtype)
        try:
            self.tensor = _zeros(shape, dtype, torch.device(device))
        except (RuntimeError, OSError, OverflowError) as error:
            raise ConfigError(
                f"The KV pool of {num_blocks} blocks × {per_block:,} bytes = {num_blocks * per_block:,} bytes "
                f"cannot be had on {device}; ask for fewer blocks."
            ) from error

    @property
    def address(self) -> int:
        """Where the pool begins, read from the tensor itself each time it is asked for."""
        return self.tensor.data_ptr()

    @property
    def nbytes(self) -> int:
        """Bytes of the whole pool, the reserved block 0 included."""
        return self.tensor.nbytes

    @staticmethod
    def bytes_per_block(layers: int, block_size: int, num_kv_heads: int, head_dim: int, dtype: torch.dtype) -> int:
        """Bytes that one block takes in all layers together, K and V."""
        return layers * 2 * block_size * num_kv_heads * head_dim * dtype.itemsize

    def layer(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        """K and V of one layer: two views [num_blocks, block_size, num_kv_heads, head_dim] of the pool."""
        k, v = self.tensor[index]
        return k, v

    def layer_addresses(self, index: int) -> tuple[int, int]:
        """Where K and V of one layer begin, for kernels that take addresses."""
        half = self.nbytes // (2 * len(self.tensor))
        start = self.address + 2 * index * half
        return start, start + half

    def copy_blocks(self, pairs: Iterable[tuple[int, int]]) -> None:
        """Copy blocks (source, destination) in every layer, one pair after the other."""
        for source, destination in pairs:
            self.tensor[:, :, destination] = self.tensor[:, :, source]


def _zeros(shape: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    if device.type != "cpu":
        return torch.zeros(shape, dtype=dtype, device=device)
    return paged_bytes(math.prod(shape) * dtype.itemsize, at_once=False).view(dtype).view(shape)
