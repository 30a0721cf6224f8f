"""A picture of the whole accounting at one instant: immutable, comparable, exportable.

An engine of ours has one KV group in one pool; an observed engine may have more groups. A block's
identity is (pool, id).
"""

from __future__ import annotations

from itertools import chain
from typing import NamedTuple

from msgspec import Struct

from pellucid.errors import SeveralGroups, UnknownRequest
from pellucid.kv.acts import LookupKind, MissReason
from pellucid.kv.block import RESERVED_BLOCK, BlockState
from pellucid.kv.table import RequestStatus


class BlockView(NamedTuple):
    """One block of a snapshot. ``requests`` are its owners' names, ``fence`` the step that may still write to it."""

    id: int
    state: BlockState
    owners: int
    requests: tuple[str, ...]
    identity: bytes | None
    fence: int


FULL_ATTENTION = "full attention"


class GroupView(Struct, frozen=True):
    """Layers whose KV lies in the same blocks: a request has one block table for each group.

    An engine of ours has one, of kind ``FULL_ATTENTION``. A ``window`` is in tokens: what lies behind it is
    given up, and block 0 stands in its places of the table.
    """

    kind: str
    block_size: int
    window: int | None = None


def only_table(name: str, tables: tuple[tuple[int, ...], ...]) -> tuple[int, ...]:
    """The one table among ``tables`` of the request ``name``. Raises `SeveralGroups` if there are more."""
    if len(tables) != 1:
        raise SeveralGroups(
            f"{name!r} has {len(tables)} block tables, one for each KV group, and none of them is the table; "
            "read `tables`."
        )
    return tables[0]


class RequestView(Struct, frozen=True):
    """One live request.

    ``tokens`` are known (prompt and output), ``slots`` of them have, or will have when the launched
    steps are done, their KV in ``tables``, one for each KV group. ``cached_tokens`` is its first admission's
    prefix hit, None while it has never been admitted or where that was not seen.
    """

    name: str
    status: RequestStatus
    tokens: int
    slots: int
    tables: tuple[tuple[int, ...], ...]
    cached_tokens: int | None
    preemptions: int

    @property
    def blocks(self) -> tuple[int, ...]:
        """Its only block table. Raises `SeveralGroups` if the engine has several KV groups: read ``tables`` there."""
        return only_table(self.name, self.tables)

    @property
    def held(self) -> tuple[int, ...]:
        """The blocks it owns in all its tables, without block 0, which stands for what a window left behind."""
        return tuple(filter(None, chain.from_iterable(self.tables)))


class PoolView(Struct, frozen=True):
    """One pool, in columns: entry ``i`` of each belongs to block ``i``.

    ``fences`` holds the launched step that may still write to a block whose writer has left, 0 if none.
    ``reuse_order`` are the reclaimable blocks, the next one to be given out first. ``usable`` is
    what requests can ever hold (``total`` less the reserved block 0).
    """

    name: str
    block_size: int
    reuse_policy: str
    owners: tuple[int, ...]
    identities: tuple[bytes | None, ...]
    fences: tuple[int, ...]
    reuse_order: tuple[int, ...]
    taken: int
    returned: int

    @property
    def total(self) -> int:
        return len(self.owners)

    @property
    def usable(self) -> int:
        return self.total - 1

    def state(self, block: int) -> BlockState:
        if block == RESERVED_BLOCK:
            return BlockState.RESERVED
        if self.owners[block]:
            return BlockState.HELD
        if self.fences[block]:
            return BlockState.FENCED
        return BlockState.FREE if self.identities[block] is None else BlockState.CACHED

    @property
    def states(self) -> tuple[BlockState, ...]:
        return tuple(self.state(i) for i in range(self.total))

    def count(self, state: BlockState) -> int:
        return self.states.count(state)

    @property
    def held(self) -> int:
        return self.count(BlockState.HELD)

    @property
    def cached(self) -> int:
        return self.count(BlockState.CACHED)

    @property
    def free(self) -> int:
        return self.count(BlockState.FREE)

    @property
    def fenced(self) -> int:
        return self.count(BlockState.FENCED)

    @property
    def reclaimable(self) -> int:
        return self.cached + self.free


class HitCount(Struct, frozen=True):
    """Lookups of one kind: requests, tokens asked for and tokens hit (denominator and numerator)."""

    requests: int = 0
    asked: int = 0
    hit: int = 0


class Snapshot(Struct, frozen=True):
    """The whole accounting after act number ``acts``, in step ``step``.

    ``launched`` are the steps handed to the runner and not committed yet. ``hits`` counts lookups
    by kind; ``missed`` counts the tokens that did not hit, by reason. ``evictions`` counts blocks.
    """

    step: int
    acts: int
    prefix_caching: bool
    groups: tuple[GroupView, ...]
    pools: tuple[PoolView, ...]
    requests: tuple[RequestView, ...]
    launched: tuple[int, ...]
    hits: dict[LookupKind, HitCount]
    missed: dict[MissReason, int]
    evictions: int

    @property
    def pool(self) -> PoolView:
        """The only pool. An observed engine may have several: use ``pools`` there."""
        (pool,) = self.pools
        return pool

    def request(self, name: str) -> RequestView:
        """The live request of exactly this name. Raises `UnknownRequest`."""
        for request in self.requests:
            if request.name == name:
                return request
        live = ", ".join(request.name for request in self.requests[:8]) or "none"
        raise UnknownRequest(f"no live request is named {name!r} in this snapshot (live: {live}).")

    def table(self, name: str) -> tuple[int, ...]:
        """The block table of the live request ``name``; empty while it waits.

        Raises `UnknownRequest`, and `SeveralGroups` where it has more than one.
        """
        return self.request(name).blocks

    def owners_of(self, block: int) -> tuple[str, ...]:
        """The names of the requests whose tables hold ``block``."""
        return tuple(request.name for request in self.requests if block in request.held)

    def block(self, block: int) -> BlockView:
        """Everything known about one block. Raises ``IndexError`` outside the pool."""
        pool = self.pool
        if not 0 <= block < pool.total:
            raise IndexError(f"there is no block {block}: the pool has {pool.total}, 0 to {pool.total - 1}.")
        return BlockView(
            block,
            pool.state(block),
            pool.owners[block],
            self.owners_of(block),
            pool.identities[block],
            pool.fences[block],
        )

    def __repr__(self) -> str:
        pools = ", ".join(
            f"{pool.total} blocks: {pool.held} held, {pool.cached} cached, {pool.free} free, {pool.fenced} fenced"
            for pool in self.pools
        )
        return f"<Snapshot of step {self.step}, act {self.acts}: {pools}; {len(self.requests)} live requests>"

    @property
    def waste(self) -> int:
        """Slots in held blocks that hold no token: the unfilled part of last blocks, in every KV group."""
        return sum(
            len(table) * group.block_size - request.slots
            for request in self.requests
            for group, table in zip(self.groups, request.tables, strict=True)
        )
