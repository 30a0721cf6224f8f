"""Where the memory of a GPU goes, what is left for the KV pool, and what to change when that is not enough."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

from pellucid.engine.memory import GIB, PoolSize, asked_blocks, longest_request, refuse_beyond_model
from pellucid.engine.options import EngineOptions
from pellucid.errors import ConfigError


class Card(NamedTuple):
    """A GPU before an engine takes any of it; bytes.

    ``used`` is what other processes hold, what this one holds already, and the driver's share of both.
    """

    name: str
    total: int
    used: int

    @property
    def free(self) -> int:
        return self.total - self.used


class Needs(NamedTuple):
    """What an engine takes beside its KV pool; bytes.

    Activations are the most that any one step holds, and what graphs keep for theirs is taken to be as much; tables
    are those of tokens and blocks.
    """

    weights: int
    activations: int = 0
    graphs: int = 0
    tables: int = 0

    @property
    def total(self) -> int:
        return sum(self)

    def __str__(self) -> str:
        named = zip(self._fields, self, strict=True)
        return ", ".join(f"{name} {nbytes / GIB:.2f} GiB" for name, nbytes in named if nbytes) or "nothing else"


@dataclass(frozen=True)
class Budget:
    """A card's memory, shared out. ``allowed``: bytes that the engine may take, by ``gpu_memory_utilization``."""

    card: Card
    needs: Needs
    pool: PoolSize
    allowed: int

    @property
    def left(self) -> int:
        """Bytes of the card that nobody takes."""
        return self.card.free - self.needs.total - self.pool.nbytes

    def lines(self) -> tuple[str, str]:
        """The budget for a person: the card, and what the engine takes of it."""
        card, pool = self.card, self.pool
        return (
            f"{card.name}: {card.total / GIB:.2f} GiB, {card.used / GIB:.2f} of it in use before this engine, which "
            f"may take {self.allowed / GIB:.2f} and leaves {self.left / GIB:.2f}",
            f"the engine takes {self.needs}, KV {pool.nbytes / GIB:.2f} GiB = {pool.num_blocks:,} blocks × "
            f"{pool.block_bytes:,} bytes",
        )


def budget(card: Card, needs: Needs, options: EngineOptions, block_bytes: int, model_max_len: int) -> Budget:
    """Share out ``card``: an absolute size of the pool as it is asked for, else all that is allowed and not needed.

    Called twice: with the weights alone before they are read, and with all that was measured before the pool is
    allocated. Raises `ConfigError` with the numbers, and with each single change that would do, if the engine would
    take more than ``gpu_memory_utilization`` allows or the card has free, or if the pool cannot hold one request.
    """
    refuse_beyond_model(options, model_max_len)
    asked = asked_blocks(options, block_bytes)
    allowed = int(card.total * options.gpu_memory_utilization)
    if asked is None:
        _refuse_more_than_free(card, needs, options, block_bytes, allowed)
        num_blocks = max(0, (allowed - needs.total) // block_bytes)
        why = f"gpu_memory_utilization={options.gpu_memory_utilization:g}"
        _refuse_too_short(card, needs, options, block_bytes, num_blocks)
    else:
        num_blocks, why = asked
    longest = longest_request(options, num_blocks, block_bytes, model_max_len)
    _refuse_too_many(card, needs, options, block_bytes, num_blocks)
    return Budget(card, needs, PoolSize(num_blocks, block_bytes, longest, why), allowed)


# -- what is refused -------------------------------------------------------------------------------


def _refuse_more_than_free(card: Card, needs: Needs, options: EngineOptions, block_bytes: int, allowed: int) -> None:
    """Two engines that each take whatever is free would have sizes that hang on who came first."""
    if allowed <= card.free:
        return
    largest = math.floor(1000 * card.free / card.total) / 1000
    missing = needs.total + _least_blocks(options) * block_bytes - int(card.total * largest)
    way_out = (
        f"gpu_memory_utilization={largest:g} would fit."
        if missing <= 0
        else f"even all of that is {missing:,} bytes less than the engine needs ({needs}): free them on this card."
    )
    raise ConfigError(
        f"gpu_memory_utilization={options.gpu_memory_utilization:g} of {card.total / GIB:.2f} GiB is "
        f"{allowed / GIB:.2f} GiB, and {card.free / GIB:.2f} GiB are free on {card.name}: {way_out}"
    )


def _refuse_too_short(card: Card, needs: Needs, options: EngineOptions, block_bytes: int, num_blocks: int) -> None:
    least = _least_blocks(options)
    if num_blocks >= least:
        return
    missing = needs.total + least * block_bytes - int(card.total * options.gpu_memory_utilization)
    room = (num_blocks - 1) * options.block_size
    shorter = [f"max_model_len={room}"] if options.max_model_len is not None and room > 1 else []
    longest = f"max_model_len={options.max_model_len}" if options.max_model_len else "the shortest request"
    raise ConfigError(
        f"{longest} needs {least:,} blocks of {block_bytes:,} bytes, and gpu_memory_utilization="
        f"{options.gpu_memory_utilization:g} of {card.total / GIB:.2f} GiB leaves {num_blocks:,} beside {needs}: "
        f"{missing:,} bytes are missing; {_ways_out(card, needs.total + least * block_bytes, shorter)}"
    )


def _refuse_too_many(card: Card, needs: Needs, options: EngineOptions, block_bytes: int, num_blocks: int) -> None:
    share = options.gpu_memory_utilization
    wanted, bound = needs.total + num_blocks * block_bytes, min(int(card.total * share), card.free)
    if wanted <= bound:
        return
    fewer = (bound - needs.total) // block_bytes
    smaller = [_size(options, fewer, block_bytes)] if fewer >= _least_blocks(options) else []
    limit = (
        f"{card.free / GIB:.2f} GiB are free on {card.name}"
        if bound == card.free
        else f"gpu_memory_utilization={share:g} of {card.total / GIB:.2f} GiB allows {bound / GIB:.2f}"
    )
    raise ConfigError(
        f"{num_blocks:,} blocks of {block_bytes:,} bytes beside {needs} take {wanted / GIB:.2f} GiB, and {limit}: "
        f"{wanted - bound:,} bytes are missing; {_ways_out(card, wanted, smaller)}"
    )


def _least_blocks(options: EngineOptions) -> int:
    """Blocks without which the longest request asked for (or a prompt and its KV, two slots) has no room."""
    return -(-(options.max_model_len or 2) // options.block_size) + 1


def _ways_out(card: Card, wanted: int, smaller: list[str]) -> str:
    """What would do instead: the smaller engines given, or a larger share, if the card has ``wanted`` bytes free."""
    share = math.ceil(1000 * wanted / card.total) / 1000
    larger = [f"gpu_memory_utilization={share:g}"] if share <= 1 and int(card.total * share) <= card.free else []
    ways = smaller + larger
    return f"{' or '.join(ways)} would fit." if ways else "free them on this card, or take a smaller model."


def _size(options: EngineOptions, num_blocks: int, block_bytes: int) -> str:
    """A pool of ``num_blocks``, asked for in the caller's own unit."""
    if options.kv_cache_tokens is not None:
        return f"kv_cache_tokens={(num_blocks - 1) * options.block_size}"
    if options.kv_cache_memory_bytes is not None:
        return f"kv_cache_memory_bytes={num_blocks * block_bytes}"
    return f"num_gpu_blocks_override={num_blocks}"
