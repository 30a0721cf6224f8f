"""Checking every invariant that can be seen of an observed vLLM, from outside its own bookkeeping."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import chain

from pellucid.attach.layout import Layout
from pellucid.attach.mirror import Mirror
from pellucid.attach.seen import Seen
from pellucid.kv.block import RESERVED_BLOCK
from pellucid.kv.fold import Fold
from pellucid.kv.invariants import SNAPSHOT_CHECKS, Violation, difference, follow
from pellucid.kv.journal import Journal
from pellucid.kv.memory import PoolMemory
from pellucid.kv.snapshot import Snapshot
from pellucid.kv.trail import Trail

Meaning = tuple[bytes, tuple[int, ...]]
"""What a hash must stand for: a namespace, and all the tokens up to the end of its block."""


class ObservedAuditor:
    """What `pellucid.kv.invariants.Auditor` is for our own engine, from now on; call `check` after each step.

    I6 compares hashes with tokens: one hash never stands for two texts, nor one text for two hashes. I13 compares
    two runs, so it is not checked here; I11 only where the memory can be seen. Nor is I10: vLLM gives a block out
    again while a launched step may write to it, and leaves the order of the writes to the device's queue.
    """

    def __init__(
        self,
        layout: Layout,
        mirror: Mirror,
        journal: Journal,
        violations: Sequence[str],
        snapshot: Callable[[], Snapshot],
        memory: Callable[[], PoolMemory | None],
    ) -> None:
        self._layout = layout
        self._mirror = mirror
        self._journal = journal
        self._told = violations
        self._snapshot = snapshot
        self._memory = memory
        self._pool_memory = memory()
        self._heard = len(violations)
        self._read = len(journal)
        base = journal.fold()
        self._trail = Trail(base, fences=False)
        self._fold = Fold(base)
        self._meanings: dict[bytes, Meaning] = {}
        self._hashes: dict[Meaning, bytes] = {}
        self.checks = 0

    def check(self) -> list[Violation]:
        """All violations found now, in what was done since the last call, and in what vLLM holds."""
        self.checks += 1
        found = [Violation("I12", message, ()) for message in self._told[self._heard :]]
        self._heard = len(self._told)
        for act in self._journal.since(self._read):
            found += follow(act, self._fold, self._trail)
        self._read = len(self._journal)
        snapshot = self._snapshot()
        for look in SNAPSHOT_CHECKS:
            found += look(snapshot)
        found += self._check_contents()
        found += self._check_namespaces()
        if (memory := self._memory()) != self._pool_memory:
            found.append(Violation("I11", f"the pool was at {self._pool_memory} and is at {memory}.", ()))
        if (folded := self._fold.snapshot()) != snapshot:
            found.append(Violation("I12", difference(folded, snapshot), ()))
        return found

    def _check_contents(self) -> Iterator[Violation]:
        """I6: every hash of a live table, beside the tokens in front of the end of its block."""
        for seen in self._mirror.requests.values():
            tokens = seen.request.all_token_ids
            for table, blocks in zip(seen.tables, self._layout.tables(seen.id), strict=True):
                for place, block in enumerate(blocks):
                    key = self._layout.identity(block)
                    if block != RESERVED_BLOCK and key is not None:
                        meaning = (seen.space + bytes([table.group]), tuple(tokens[: (place + 1) * table.size]))
                        yield from self._compare(seen.name, block, key, meaning)

    def _compare(self, name: str, block: int, key: bytes, meaning: Meaning) -> Iterator[Violation]:
        if self._meanings.setdefault(key, meaning) != meaning:
            message = f"block {block} of {name!r} has a hash that also stood for other tokens, or another salt."
            yield Violation("I6", message, (block,))
        if self._hashes.setdefault(meaning, key) != key:
            yield Violation("I6", f"block {block} of {name!r} has another hash than the same tokens had.", (block,))

    def _check_namespaces(self) -> Iterator[Violation]:
        """I14, by the salts and adapters that vLLM's own requests carry."""
        holders: dict[int, Seen] = {}
        for seen in self._mirror.requests.values():
            for block in chain.from_iterable(self._layout.tables(seen.id)):
                other = holders.setdefault(block, seen)
                if block != RESERVED_BLOCK and other.space != seen.space:
                    message = f"{other.name!r} and {seen.name!r} of another salt or adapter both hold block {block}."
                    yield Violation("I14", message, (block,))
