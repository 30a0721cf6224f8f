"""Folding acts into a snapshot: an independent, plain account of what the journal tells.

It keeps ordered dictionaries where the pool keeps linked lists and shares no code with it, so that
``fold(journal) == snapshot`` (invariant I12) compares two implementations.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from pellucid.errors import JournalError
from pellucid.kv import acts
from pellucid.kv.block import RESERVED_BLOCK, BlockState
from pellucid.kv.snapshot import HitCount, PoolView, RequestView, Snapshot
from pellucid.kv.table import RequestStatus

WINDOWS_IN_FRONT = "vllm-0.23, windows in front"
"""Of a vLLM that is observed: 0.23.0 with sliding windows. No pool of ours has it."""


class _Request:
    """The running account of one request."""

    def __init__(self, tokens: int, groups: int) -> None:
        self.status = RequestStatus.WAITING
        self.tokens = tokens
        self.slots = 0
        self.tables: list[list[int]] = [[] for _ in range(groups)]
        self.cached_tokens: int | None = None
        self.preemptions = 0


class _Order:
    """Reclaimable blocks in order of re-use: a stack of returned free blocks, a queue, and the cached.

    ``free-first`` keeps its cached blocks apart; ``vllm-0.24`` stacks returned free blocks in front;
    ``vllm-0.23`` queues everything; `WINDOWS_IN_FRONT` does so, but stacks those of sliding windows. A dictionary
    serves as a set that remembers its order.
    """

    def __init__(self, policy: str, pool: PoolView) -> None:
        self._front: dict[int, None] = {}
        self._queue: dict[int, None] = {}
        self._cached: dict[int, None] = {} if policy == "free-first" else self._queue
        self._stacks = policy == "vllm-0.24"
        self._stacks_windows = policy in ("vllm-0.24", WINDOWS_IN_FRONT)
        for block in pool.reuse_order:  # front to back: everything queued is right for every policy
            home = self._cached if pool.state(block) is BlockState.CACHED else self._queue
            home[block] = None

    def put(self, blocks: Iterable[int], identities: list[bytes | None], *, windowed: bool = False) -> None:
        """``blocks`` come last of their table first; ``windowed`` are those of a sliding window."""
        stacks = self._stacks_windows if windowed else self._stacks
        free = []
        for block in blocks:
            if identities[block] is not None:
                self._cached[block] = None
            elif stacks:
                free.append(block)
            else:
                self._queue[block] = None
        for block in reversed(free):  # the last one stacked is the first to be given out
            self._front[block] = None

    def remove(self, blocks: Iterable[int]) -> None:
        for block in blocks:
            for home in (self._front, self._queue, self._cached):
                home.pop(block, None)

    def __iter__(self) -> Iterator[int]:
        yield from reversed(self._front)
        yield from self._queue
        if self._cached is not self._queue:
            yield from self._cached


class Fold:
    """Starts from a snapshot, takes acts one by one, gives the snapshot after the last."""

    def __init__(self, base: Snapshot) -> None:
        self._base = base
        pool = base.pool
        self.step = base.step
        self.acts = base.acts
        self._owners = list(pool.owners)
        self._identities = list(pool.identities)
        self._fences = list(pool.fences)
        self._order = _Order(pool.reuse_policy, pool)
        self._windowed = [group.window is not None for group in base.groups]
        self._taken = pool.taken
        self._returned = pool.returned
        self._requests = {request.name: _thaw(request) for request in base.requests}
        self._launched = list(base.launched)
        self._hits = dict(base.hits)
        self._missed = dict(base.missed)
        self._evictions = base.evictions

    def apply(self, act: acts.AnyAct) -> None:
        """Take one act into account. Raises `JournalError` for one that cannot follow those before it."""
        self.step = act.step
        self.acts += 1
        try:
            _APPLY[type(act)](self, act)
        except KeyError as error:
            raise JournalError(
                f"act {self.acts}, {acts.told(act)}, names {error}, which no earlier act opened."
            ) from error
        except (IndexError, ValueError) as error:
            raise JournalError(
                f"act {self.acts}, {acts.told(act)}, cannot follow the acts before it ({error})."
            ) from error

    def snapshot(self) -> Snapshot:
        base = self._base.pool
        pool = PoolView(
            name=base.name,
            block_size=base.block_size,
            reuse_policy=base.reuse_policy,
            owners=tuple(self._owners),
            identities=tuple(self._identities),
            fences=tuple(self._fences),
            reuse_order=tuple(self._order),
            taken=self._taken,
            returned=self._returned,
        )
        return Snapshot(
            step=self.step,
            acts=self.acts,
            prefix_caching=self._base.prefix_caching,
            groups=self._base.groups,
            pools=(pool,),
            requests=tuple(_freeze(name, request) for name, request in self._requests.items()),
            launched=tuple(self._launched),
            hits=dict(self._hits),
            missed=dict(self._missed),
            evictions=self._evictions,
        )

    def _open(self, act: acts.Open) -> None:
        self._requests[act.request] = _Request(act.tokens, len(self._base.groups))

    def _lookup(self, act: acts.Lookup) -> None:
        count = self._hits.get(act.kind, HitCount())
        self._hits[act.kind] = HitCount(count.requests + 1, count.asked + act.asked, count.hit + act.hit)
        for miss in act.missed:
            self._missed[miss.reason] = self._missed.get(miss.reason, 0) + miss.tokens

    def _share(self, act: acts.Share) -> None:
        self._order.remove(act.revived)
        held = [block for block in act.blocks if block != RESERVED_BLOCK]
        for block in held:
            self._owners[block] += 1
        self._requests[act.request].tables[act.group] += act.blocks
        self._taken += len(held)

    def _evict(self, act: acts.Evict) -> None:
        self._evictions += len(act.blocks)
        self._empty(act.blocks)

    def _take(self, act: acts.Take) -> None:
        self._order.remove(act.blocks)
        for block in act.blocks:
            self._owners[block] = 1
        self._requests[act.request].tables[act.group] += act.blocks
        self._taken += len(act.blocks)

    def _publish(self, act: acts.Publish) -> None:
        for block, identity in zip(act.blocks, act.identities, strict=True):
            self._identities[block] = identity

    def _unpublish(self, act: acts.Unpublish) -> None:
        self._empty(act.blocks)

    def _forget(self, act: acts.Forget) -> None:
        self._empty(act.blocks)

    def _empty(self, blocks: Iterable[int]) -> None:
        for block in blocks:
            self._identities[block] = None

    def _admit(self, act: acts.Admit) -> None:
        request = self._requests[act.request]
        request.status = RequestStatus.RUNNING
        request.slots = act.computed
        if request.cached_tokens is None:
            request.cached_tokens = act.computed

    def _launch(self, act: acts.Launch) -> None:
        for name, count in zip(act.requests, act.counts, strict=True):
            self._requests[name].slots += count
        self._launched.append(act.step)

    def _commit(self, act: acts.Commit) -> None:
        for name in act.requests:
            self._requests[name].tokens += 1
        self._launched.remove(act.launched)

    def _return(self, act: acts.Return) -> None:
        for block in act.blocks:
            self._owners[block] -= 1
        for block in act.fenced:
            self._fences[block] = act.fence
        usable = (block for block in act.blocks if not self._owners[block] and not self._fences[block])
        self._order.put(usable, self._identities, windowed=self._windowed[act.group])
        request = self._requests[act.request]
        request.tables[act.group] = []
        request.slots = 0
        self._returned += len(act.blocks)

    def _drop(self, act: acts.Drop) -> None:
        for block in act.blocks:
            self._owners[block] -= 1
        usable = (block for block in act.blocks if not self._owners[block])
        self._order.put(usable, self._identities, windowed=True)
        table = self._requests[act.request].tables[act.group]
        for place in act.places:
            table[place] = RESERVED_BLOCK
        self._returned += len(act.blocks)

    def _unfence(self, act: acts.Unfence) -> None:
        for block in act.blocks:
            self._fences[block] = 0
        self._order.put((block for block in act.blocks if not self._owners[block]), self._identities)

    def _move(self, act: acts.Move) -> None:
        block, to = act.block, act.to
        self._order.remove((to,))
        self._owners[to], self._owners[block] = self._owners[block], 0
        self._identities[to], self._identities[block] = self._identities[block], None
        for name in act.requests:
            for table in self._requests[name].tables:
                if block in table:
                    table[table.index(block)] = to
        if act.fence:
            self._fences[block] = act.fence
        if not self._fences[block]:
            self._order.put((block,), self._identities)

    def _preempt(self, act: acts.Preempt) -> None:
        request = self._requests[act.request]
        request.status = RequestStatus.PREEMPTED
        request.preemptions += 1

    def _close(self, act: acts.Close) -> None:
        del self._requests[act.request]


_APPLY: dict[type, Callable[[Fold, Any], None]] = {
    acts.Open: Fold._open,
    acts.Lookup: Fold._lookup,
    acts.Share: Fold._share,
    acts.Evict: Fold._evict,
    acts.Take: Fold._take,
    acts.Publish: Fold._publish,
    acts.Unpublish: Fold._unpublish,
    acts.Admit: Fold._admit,
    acts.Launch: Fold._launch,
    acts.Commit: Fold._commit,
    acts.Return: Fold._return,
    acts.Drop: Fold._drop,
    acts.Forget: Fold._forget,
    acts.Unfence: Fold._unfence,
    acts.Move: Fold._move,
    acts.Preempt: Fold._preempt,
    acts.Close: Fold._close,
}


def _freeze(name: str, request: _Request) -> RequestView:
    return RequestView(
        name,
        request.status,
        request.tokens,
        request.slots,
        tuple(map(tuple, request.tables)),
        request.cached_tokens,
        request.preemptions,
    )


def _thaw(view: RequestView) -> _Request:
    request = _Request(view.tokens, len(view.tables))
    request.status = view.status
    request.slots = view.slots
    request.tables = list(map(list, view.tables))
    request.cached_tokens = view.cached_tokens
    request.preemptions = view.preemptions
    return request
