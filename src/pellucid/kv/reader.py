"""What an engine shows of its KV memory: everything, and nothing that writes."""

from __future__ import annotations

from collections.abc import Callable

from pellucid.kv.explain import Explanation
from pellucid.kv.invariants import Auditor
from pellucid.kv.journal import Journal
from pellucid.kv.manager import KVManager
from pellucid.kv.memory import PoolMemory
from pellucid.kv.snapshot import Snapshot


class KVReader:
    """The reading side of a `KVManager`: ``llm.kv``.

    ``memory`` asks the runner where the pool is; without a model there is none.
    """

    def __init__(self, manager: KVManager, memory: Callable[[], PoolMemory] | None = None) -> None:
        self._manager = manager
        self._memory = memory

    @property
    def block_size(self) -> int:
        """Tokens per block."""
        return self._manager.block_size

    @property
    def journal(self) -> Journal:
        """Every act so far; the oldest may have been folded into its base."""
        return self._manager.journal

    def table(self, name: str) -> tuple[int, ...]:
        """The physical block ids of the live request of exactly this name; empty while it waits.

        Raises `FinishedRequest`, naming the step and the last table, or `UnknownRequest`.
        """
        return self._manager.table(name)

    def snapshot(self) -> Snapshot:
        """The whole pool now, immutable."""
        return self._manager.snapshot()

    def explain(self, name: str) -> Explanation:
        """Why the request's last admission hit what it hit; finished requests can still be asked about."""
        return self._manager.explain(name)

    def auditor(self) -> Auditor:
        """A checker of every invariant from now on; call its ``check()`` after each step."""
        return Auditor(self._manager, self.memory)

    def memory(self) -> PoolMemory | None:
        """Address and size of the pool as its tensor says now; None where there is no memory."""
        return self._memory() if self._memory else None
