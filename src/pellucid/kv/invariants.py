"""The public contract: what must hold for every block at every step, and a checker for each.

A checker names the offending blocks. Those that can be seen in one picture (I1-I3, I6, I7, I9, I14)
read a snapshot or the live tables; those that need the past (I4, I5, I8, I10) follow the journal
act by act; I11 asks the runner, I12 folds. I13 compares two runs: `pellucid.kv.first_difference`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import NamedTuple

from pellucid.errors import InvariantViolation
from pellucid.kv.acts import AnyAct, told
from pellucid.kv.block import RESERVED_BLOCK, BlockState
from pellucid.kv.fold import Fold
from pellucid.kv.identity import ROOT, identity
from pellucid.kv.manager import KVManager
from pellucid.kv.memory import PoolMemory
from pellucid.kv.snapshot import Snapshot
from pellucid.kv.trail import Trail

INVARIANTS: dict[str, str] = {
    "I1": "every block is in exactly one state",
    "I2": "a block's owners are its table references",
    "I3": "a table is ceil(slots / block_size) blocks long, and wastes less than one block",
    "I4": "a block is never written after the step that fills it, nor while it is shared",
    "I5": "what is findable is written, or its write is in a plan no later than any reader's",
    "I6": "a block's hash stands for exactly its tokens, its prefix and its namespace",
    "I7": "a hit is prefix-closed, and whatever is findable has its parent findable",
    "I8": "every admitted request computes at least one token",
    "I9": "blocks taken less blocks returned are the blocks held",
    "I10": "no block is re-used while a launched step may still write to it",
    "I11": "the pool's address and size never change",
    "I12": "the journal folds to the snapshot",
    "I13": "the same requests, forced tokens and scheduling mode give the same journal everywhere",
    "I14": "requests of different salts or adapters never share a block",
}


class Violation(NamedTuple):
    """One broken invariant: which, what was seen, and the blocks concerned."""

    invariant: str
    message: str
    blocks: tuple[int, ...]

    def __str__(self) -> str:
        return f"{self.invariant} ({INVARIANTS[self.invariant]}) is broken: {self.message}"


def check_states(snapshot: Snapshot) -> Iterator[Violation]:
    """I1: the reclaimable order holds each cached and free block once, and no other."""
    for pool in snapshot.pools:
        listed = Counter(pool.reuse_order)
        for block, state in enumerate(pool.states):
            expected = 1 if state in (BlockState.CACHED, BlockState.FREE) else 0
            if listed[block] != expected:
                message = f"block {block} is {state} and stands {listed[block]} times in the order of re-use."
                yield Violation("I1", message, (block,))
            if pool.owners[block] < 0 or (block == RESERVED_BLOCK and pool.owners[block]):
                yield Violation("I1", f"block {block} ({state}) has {pool.owners[block]} owners.", (block,))
            if pool.fences[block] and pool.fences[block] not in snapshot.launched:
                message = f"block {block} waits for step {pool.fences[block]}, which is not under way."
                yield Violation("I1", message, (block,))


def check_owners(snapshot: Snapshot) -> Iterator[Violation]:
    """I2, over unique physical ids: no id twice in one table, no reserved id in any."""
    references: Counter[int] = Counter()
    for request in snapshot.requests:
        references.update(request.held)
        twice = tuple(block for block, times in Counter(request.held).items() if times > 1)
        if twice:
            yield Violation("I2", f"the table of {request.name!r} holds blocks {twice} more than once.", twice)
    for block, owners in enumerate(snapshot.pool.owners):
        if owners != references[block]:
            message = f"block {block} counts {owners} owners and stands in {references[block]} tables."
            yield Violation("I2", message, (block,))


def check_lengths(snapshot: Snapshot) -> Iterator[Violation]:
    """I3."""
    for request in snapshot.requests:
        for group, table in zip(snapshot.groups, request.tables, strict=True):
            expected = -(-request.slots // group.block_size)
            if len(table) != expected:
                message = f"{request.name!r} has {request.slots} slots and {len(table)} blocks, not {expected}."
                yield Violation("I3", message, table)


def check_balance(snapshot: Snapshot) -> Iterator[Violation]:
    """I9, counted against the tables."""
    pool = snapshot.pool
    held = sum(len(request.held) for request in snapshot.requests)
    if pool.taken - pool.returned != held:
        balance = f"{pool.taken} taken less {pool.returned} returned are {pool.taken - pool.returned}"
        yield Violation("I9", f"{balance}, and tables hold {held}.", ())


def check_contents(kv: KVManager) -> Iterator[Violation]:
    """I6: every hash is recomputed, and every published block of a table holds that table's tokens."""
    findable = dict(kv.pool.index)
    for block in kv.pool.blocks:
        content = block.content
        if content is None:
            continue
        if identity(content.parent, content.tokens, content.namespace) != content.identity:
            yield Violation("I6", f"block {block.id} is findable under a hash that is not its content's.", (block.id,))
        if block not in findable.get(content.identity, ()):
            yield Violation("I6", f"block {block.id} has a hash under which the index does not find it.", (block.id,))
    yield from _check_index(kv)
    for table in kv.live_tables():
        size, parent = table.block_size, ROOT
        for i, block in enumerate(table.blocks[: table.published]):
            tokens = tuple(table.tokens[i * size : (i + 1) * size])
            if block.content is None or block.content.tokens != tokens or block.content.parent != parent:
                message = f"block {block.id} is block {i} of {table.name!r} and holds other content."
                yield Violation("I6", message, (block.id,))
            parent = block.content.identity if block.content else ROOT


def _check_index(kv: KVManager) -> Iterator[Violation]:
    for key, blocks in kv.pool.index:
        for block in blocks:
            if block.content is None or block.content.identity != key:
                yield Violation("I6", f"the index finds block {block.id} under a hash it does not have.", (block.id,))


def check_parents(kv: KVManager) -> Iterator[Violation]:
    """I7, its second half."""
    for block in kv.pool.blocks:
        content = block.content
        if content is not None and content.parent != ROOT and content.parent not in kv.pool.index:
            yield Violation("I7", f"block {block.id} is findable and the block before it is not.", (block.id,))


def check_namespaces(kv: KVManager) -> Iterator[Violation]:
    """I14: every block of a table that has content has it in the table's own namespace."""
    for table in kv.live_tables():
        strange = tuple(b.id for b in table.blocks if b.content is not None and b.content.namespace != table.space)
        if strange:
            yield Violation("I14", f"{table.name!r} holds blocks {strange} of another salt or adapter.", strange)


SNAPSHOT_CHECKS: tuple[Callable[[Snapshot], Iterator[Violation]], ...] = (
    check_states,
    check_owners,
    check_lengths,
    check_balance,
)
LIVE_CHECKS: tuple[Callable[[KVManager], Iterator[Violation]], ...] = (
    check_contents,
    check_parents,
    check_namespaces,
)


def follow(act: AnyAct, fold: Fold, trail: Trail) -> Iterator[Violation]:
    """Take ``act`` into both accounts; yields what it breaks."""
    try:
        fold.apply(act)
        for fault in trail.follow(act):
            yield Violation(*fault)
    except (LookupError, ValueError) as error:  # an act that cannot follow the ones before it
        yield Violation("I12", f"{told(act)} cannot be folded ({error}).", ())


class Auditor:
    """Checks every invariant of one live manager, each time it is asked; best after every step.

    ``memory`` tells where the pool is (I11 is not observable without it).
    """

    def __init__(self, kv: KVManager, memory: Callable[[], PoolMemory | None] = lambda: None) -> None:
        self._kv = kv
        self._memory = memory
        self._pool_memory = memory()
        self._read = len(kv.journal)
        base = kv.journal.fold()
        self._trail = Trail(base)
        self._fold = Fold(base)
        self.checks = 0

    def check(self) -> list[Violation]:
        """All violations found now, those in acts since the last call included."""
        self.checks += 1
        found = list(self._follow())
        snapshot = self._kv.snapshot()
        for look in SNAPSHOT_CHECKS:
            found += look(snapshot)
        for inspect in LIVE_CHECKS:
            found += inspect(self._kv)
        found += self._check_memory()
        folded = self._fold.snapshot()
        if folded != snapshot:
            found.append(Violation("I12", difference(folded, snapshot), ()))
        return found

    def require(self) -> None:
        """Raise `InvariantViolation` with the first violation, if there is any."""
        if found := self.check():
            raise InvariantViolation(str(found[0]))

    def _follow(self) -> Iterator[Violation]:
        for act in self._kv.journal.since(self._read):
            yield from follow(act, self._fold, self._trail)
        self._read = len(self._kv.journal)

    def _check_memory(self) -> Iterator[Violation]:
        now = self._memory()
        if now != self._pool_memory:
            yield Violation("I11", f"the pool was at {self._pool_memory} and is at {now}.", ())


def difference(folded: Snapshot, seen: Snapshot) -> str:
    """Where the journal's account and the live one part."""
    for field in Snapshot.__struct_fields__:
        mine, live = getattr(folded, field), getattr(seen, field)
        if mine != live:
            return f"{field} folds to {str(mine)[:200]} and is {str(live)[:200]}."
    return "no field differs."
