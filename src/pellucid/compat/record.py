"""What is written down about one engine while a script runs it."""

from __future__ import annotations

from pellucid.kv.memory import PoolMemory


class EngineRecord:
    """The model the script named and the one it got, and the pool at the first step and at the last.

    ``moved_at`` is the first step after which the pool's address or size was not what it had been at
    the start, None if there was none. ``ids_read``: the script has looked at internal request ids.
    """

    def __init__(self, model: str, named: str, num_blocks: int, pool: PoolMemory) -> None:
        self.model = model
        self.named = named
        self.num_blocks = num_blocks
        self.first = self.last = pool
        self.steps = 0
        self.moved_at: int | None = None
        self.ids_read = False

    def step(self, pool: PoolMemory) -> None:
        """One more step has been made, and here is where the pool is now."""
        self.steps += 1
        self.last = pool
        if pool != self.first and self.moved_at is None:
            self.moved_at = self.steps
