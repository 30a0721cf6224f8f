"""``req_to_blocks``: who holds which blocks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from pellucid.compat.block_pool import Block, BlockPool
from pellucid.compat.engine import Engine
from pellucid.engine.sequence import Sequence


class RequestBlocks(Mapping[str, list[Block]]):
    """Internal request id to the blocks of its table, for every request that holds any, as of now.

    Each list is as of the moment it was asked for. Like vLLM's, which is a ``defaultdict``, it
    answers an unknown id in brackets with an empty list; unlike vLLM's it does not grow by it.
    """

    def __init__(self, engine: Engine, pool: BlockPool) -> None:
        self._engine = engine
        self._pool = pool

    def _holders(self) -> dict[str, Sequence]:
        self._engine.record.ids_read = True
        running = self._engine.scheduler.running
        return {self._engine.ids.of(sequence.name): sequence for sequence in running if sequence.table.blocks}

    def __iter__(self) -> Iterator[str]:
        return iter(self._holders())

    def __len__(self) -> int:
        return len(self._holders())

    def __contains__(self, internal: object) -> bool:
        return internal in self._holders()

    def __getitem__(self, internal: str) -> list[Block]:
        return self.get(internal, [])

    def get(self, internal: str, default: Any = None) -> Any:
        holder = self._holders().get(internal)
        return [self._pool.blocks[block.id] for block in holder.table.blocks] if holder else default

    def __repr__(self) -> str:
        return f"req_to_blocks({dict(self)})"
