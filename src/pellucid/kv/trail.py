"""Following the journal act by act: what was written where, by which step, and who may read it.

This is the past that a snapshot cannot show. It keeps, per block, how many of its slots a launched
plan fills, and per launched step the blocks it may still write to.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from pellucid.kv import acts
from pellucid.kv.snapshot import Snapshot


class Fault(NamedTuple):
    """What `pellucid.kv.invariants` makes a violation of."""

    invariant: str
    message: str
    blocks: tuple[int, ...]


class Trail:
    """Checks I4, I5, I7 (hits), I8 and I10 on acts, and what a move may not do, in the order in which they happened.

    Of an engine with one KV group: raises `SeveralGroups` where a request of ``base`` has more tables. One that does
    not fence (``fences`` is False) leaves the order of writes to its device's queue, so that I10 says nothing of it.
    """

    def __init__(self, base: Snapshot, *, fences: bool = True) -> None:
        self._fences = fences
        size = base.pool.block_size
        self._size = size
        self._tables = {request.name: list(request.blocks) for request in base.requests}
        self._slots = {request.name: request.slots for request in base.requests}
        self._tokens = {request.name: request.tokens for request in base.requests}
        self._owners = list(base.pool.owners)
        self._identities = list(base.pool.identities)
        self._shared = [0] * len(self._owners)  # the step in which the block last got a further owner
        self._filled = [0 if identity is None else size for identity in base.pool.identities]
        for request in base.requests:
            for i, block in enumerate(request.blocks):
                self._filled[block] = min(size, request.slots - i * size)
        self._writing: dict[int, set[int]] = {step: set() for step in base.launched}
        self._last_launch = base.step
        self._unwritten: dict[int, str] = {}  # findable blocks whose write the plan under way must hold

    def follow(self, act: acts.AnyAct) -> Iterator[Fault]:
        """Take one act into account; yields what it breaks."""
        handler = _FOLLOW.get(type(act))
        if handler is not None:
            yield from handler(self, act)

    def written_by(self, block: int) -> int:
        """The first launched step that may still write to ``block``, 0 if none does."""
        return next((step for step, blocks in self._writing.items() if block in blocks), 0)

    def _open(self, act: acts.Open) -> Iterator[Fault]:
        self._tables[act.request] = []
        self._slots[act.request] = 0
        self._tokens[act.request] = act.tokens
        yield from ()

    def _lookup(self, act: acts.Lookup) -> Iterator[Fault]:
        if act.hit >= act.asked:
            yield Fault("I8", f"{act.request!r} hit all {act.hit} of its {act.asked} tokens.", ())

    def _share(self, act: acts.Share) -> Iterator[Fault]:
        for block in act.blocks:
            if self._identities[block] is None:
                yield Fault("I7", f"{act.request!r} hit block {block}, which is not findable.", (block,))
            if self._filled[block] < self._size:
                self._unwritten[block] = act.request
            self._owners[block] += 1
            self._shared[block] = act.step
        if self._tables[act.request]:
            yield Fault("I7", f"{act.request!r} hit {act.blocks} behind other blocks of its table.", act.blocks)
        self._tables[act.request] += act.blocks

    def _evict(self, act: acts.Evict) -> Iterator[Fault]:
        for block in act.blocks:
            self._identities[block] = None
        yield from ()

    def _take(self, act: acts.Take) -> Iterator[Fault]:
        for block in act.blocks:
            if self._fences and (step := self.written_by(block)):
                message = f"block {block} went to {act.request!r} while step {step} may still write to it."
                yield Fault("I10", message, (block,))
            if self._identities[block] is not None:
                message = f"block {block} went to {act.request!r} for new tokens while it was findable."
                yield Fault("I6", message, (block,))
            self._filled[block] = 0
            self._owners[block] += 1
        self._tables[act.request] += act.blocks

    def _publish(self, act: acts.Publish) -> Iterator[Fault]:
        planned = act.step > self._last_launch  # the plan of this step is still being made
        for block, identity in zip(act.blocks, act.identities, strict=True):
            self._identities[block] = identity
            if self._filled[block] == self._size:
                continue
            if planned:
                self._unwritten[block] = act.request
            else:
                yield self._never_written(block, act.request)

    def _unpublish(self, act: acts.Unpublish) -> Iterator[Fault]:
        for block in act.blocks:
            self._identities[block] = None
            self._unwritten.pop(block, None)
        yield from ()

    def _admit(self, act: acts.Admit) -> Iterator[Fault]:
        self._slots[act.request] = act.computed
        if act.computed >= self._tokens[act.request]:
            message = f"{act.request!r} starts with all {act.computed} of its tokens computed."
            yield Fault("I8", message, ())
        if act.computed != len(self._tables[act.request]) * self._size:
            message = f"{act.request!r} starts at {act.computed} with {len(self._tables[act.request])} shared blocks."
            yield Fault("I7", message, tuple(self._tables[act.request]))

    def _launch(self, act: acts.Launch) -> Iterator[Fault]:
        self._writing[act.step] = set()
        self._last_launch = act.step
        for name, count in zip(act.requests, act.counts, strict=True):
            if count < 1:
                yield Fault("I8", f"{name!r} is in the plan of step {act.step} with {count} tokens.", ())
            yield from self._write(name, self._slots[name], self._slots[name] + count, act.step)
            self._slots[name] += count
        for block, name in self._unwritten.items():
            if self._filled[block] < self._size:
                yield self._never_written(block, name)
        self._unwritten.clear()

    def _write(self, name: str, start: int, end: int, step: int) -> Iterator[Fault]:
        size, table = self._size, self._tables[name]
        for i in range(start // size, -(-end // size)):
            if i >= len(table):
                yield Fault("I3", f"{name!r} writes up to token {end} with a table of {len(table)} blocks.", ())
                return
            block = table[i]
            first, last = max(start, i * size) - i * size, min(end, (i + 1) * size) - i * size
            if self._owners[block] > 1 and self._shared[block] < step:  # in the step that fills it, others may join
                yield Fault("I4", f"{name!r} writes to block {block}, which {self._owners[block]} own.", (block,))
            if first < self._filled[block]:
                message = f"{name!r} writes slot {first} of block {block}, of which {self._filled[block]} are written."
                yield Fault("I4", message, (block,))
            self._filled[block] = last
            self._writing[step].add(block)

    def _never_written(self, block: int, name: str) -> Fault:
        filled = f"{self._filled[block]} of its {self._size} slots"
        return Fault("I5", f"block {block} is findable by {name!r} with {filled} in launched plans.", (block,))

    def _commit(self, act: acts.Commit) -> Iterator[Fault]:
        self._writing.pop(act.launched, None)
        for name in act.requests:
            self._tokens[name] += 1
        yield from ()

    def _return(self, act: acts.Return) -> Iterator[Fault]:
        for block in act.blocks:
            self._owners[block] -= 1
        self._tables[act.request] = []
        self._slots[act.request] = 0
        yield from ()

    def _unfence(self, act: acts.Unfence) -> Iterator[Fault]:
        for block in act.blocks:
            steps = [step for step, blocks in self._writing.items() if block in blocks]
            if steps:
                message = f"block {block} is out of its fence while step {steps[0]} may still write to it."
                yield Fault("I10", message, (block,))

    def _move(self, act: acts.Move) -> Iterator[Fault]:
        block, to = act.block, act.to
        for step, blocks in self._writing.items():
            if to in blocks:
                yield Fault("I10", f"block {block} was moved to {to} while step {step} may still write there.", (to,))
        if self._owners[to]:
            yield Fault("I4", f"block {block} was moved over block {to}, which {self._owners[to]} own.", (to,))
        if self._identities[to] is not None:
            yield Fault("I6", f"block {block} was moved to {to} while that was findable.", (to,))
        for name, table in self._tables.items():
            if (block in table) != (name in act.requests):
                owns = "keeps" if block in table else "never had"
                yield Fault("I2", f"block {block} was moved to {to}, and {name!r} {owns} it.", (block, to))
        for name in act.requests:
            self._tables[name] = [to if each == block else each for each in self._tables[name]]
        self._owners[to], self._owners[block] = self._owners[block], 0
        self._identities[to], self._identities[block] = self._identities[block], None
        self._filled[to], self._filled[block] = self._filled[block], 0
        self._shared[to] = self._shared[block]


_FOLLOW: dict[type, Callable[[Trail, Any], Iterator[Fault]]] = {
    acts.Open: Trail._open,
    acts.Lookup: Trail._lookup,
    acts.Share: Trail._share,
    acts.Evict: Trail._evict,
    acts.Take: Trail._take,
    acts.Publish: Trail._publish,
    acts.Unpublish: Trail._unpublish,
    acts.Admit: Trail._admit,
    acts.Launch: Trail._launch,
    acts.Commit: Trail._commit,
    acts.Return: Trail._return,
    acts.Unfence: Trail._unfence,
    acts.Move: Trail._move,
}
