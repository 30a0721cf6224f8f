"""The KV manager: the only writer of block state, and the one place to ask about it."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from pellucid.errors import DuplicateRequest, FinishedRequest, InvariantViolation, MoveRefused, UnknownRequest
from pellucid.kv import acts
from pellucid.kv.block import Block, BlockState, Content, check_block_size
from pellucid.kv.explain import Explanation
from pellucid.kv.identity import ROOT, namespace, space_id
from pellucid.kv.journal import Journal
from pellucid.kv.ledger import MissLedger
from pellucid.kv.pool import BlockPool
from pellucid.kv.snapshot import FULL_ATTENTION, GroupView, PoolView, RequestView, Snapshot
from pellucid.kv.table import NEVER, BlockTable, RequestStatus

JOURNAL_CAPACITY = 100_000
REMEMBERED_REQUESTS = 4_096
NO_BLOCKS: tuple[int, ...] = ()


class PrefixHit(NamedTuple):
    """Found blocks, in table order, the tokens they stand for, and how many of them have no owner now.

    ``revived`` counts the blocks that reclaiming space would have to do without.
    """

    blocks: list[Block]
    tokens: int
    revived: int


class Writing(NamedTuple):
    """Token positions ``start .. end - 1`` that launched steps, the last of them ``step``, still write to."""

    step: int
    start: int
    end: int


class _Finished(NamedTuple):
    step: int
    table: tuple[int, ...]
    lookup: acts.Lookup | None


class KVManager:
    """Block tables for requests, from one pool.

    The scheduler calls `open`, `match`, `admit`, `extend`, `preempt`, `publish`, `close`,
    and `begin_step`, `launch`, `commit` around them, and `move` between two steps; everybody else only reads.

    ``shuffle_blocks`` seeds a random order of first use (None: ascending ids).
    ``journal_capacity`` bounds the journal (None: keep every act). ``verify_hits`` compares the
    token ids of every hit block with the request's and raises `InvariantViolation` if they differ.

    Raises `ConfigError` for a pool or block size that cannot work.
    """

    def __init__(
        self,
        num_blocks: int,
        block_size: int = 16,
        *,
        enable_prefix_caching: bool = True,
        reuse_policy: str = "free-first",
        shuffle_blocks: int | None = None,
        journal_capacity: int | None = JOURNAL_CAPACITY,
        verify_hits: bool = False,
    ) -> None:
        check_block_size(block_size)
        self.block_size = block_size
        self.prefix_caching = enable_prefix_caching
        self.pool = BlockPool(num_blocks, reuse_policy, shuffle_blocks)
        self.ledger = MissLedger(self.pool.index)
        self.verify_hits = verify_hits
        self.step = 0
        self.launched: list[int] = []
        self._tables: dict[str, BlockTable] = {}
        self._finished: OrderedDict[str, _Finished] = OrderedDict()
        self._batch: tuple[str, ...] = ()
        self.journal = Journal(self._snapshot(step=0, acts=0), journal_capacity)

    # -- what the scheduler does -------------------------------------------------------------------

    def begin_step(self) -> int:
        """A new plan is being made: its number, counted from 1."""
        self.journal.compact()
        self.step += 1
        return self.step

    def open(
        self,
        name: str,
        tokens: list[int],
        *,
        salt: str | None = None,
        adapter: tuple[str, str] | None = None,
        skip_lookup: bool = False,
    ) -> BlockTable:
        """Register a waiting request; ``tokens`` is the live list to which its output is appended.

        Raises `DuplicateRequest` if a live request has this name.
        """
        if name in self._tables:
            raise DuplicateRequest(
                f"a live request is already named {name!r}; wait for its end, abort it, or choose another name."
            )
        table = BlockTable(name, tokens, self.block_size, namespace(salt, adapter), skip_lookup=skip_lookup)
        self._tables[name] = table
        self._finished.pop(name, None)
        self.journal.append(acts.Open(self.step, name, len(tokens), space_id(table.space)))
        return table

    def match(self, table: BlockTable) -> PrefixHit:
        """The longest findable prefix: whole blocks, and never the last token. Changes nothing."""
        found: list[Block] = []
        if self.prefix_caching and not table.skip_lookup:
            most = (len(table.tokens) - 1) // self.block_size
            for identity in table.chain(most)[:most]:
                block = self.pool.index.find(identity)
                if block is None:
                    break
                found.append(block)
        revived = sum(1 for block in found if not block.owners)
        return PrefixHit(found, len(found) * self.block_size, revived)

    def blocks_for(self, tokens: int) -> int:
        """``ceil(tokens / block_size)``."""
        return -(-tokens // self.block_size)

    def fits(self, hit: PrefixHit, tokens: int, spare: int) -> bool:
        """Whether ``tokens`` in all, the hit included, can have slots now and leave ``spare`` blocks."""
        needed = self.blocks_for(tokens) - len(hit.blocks) + hit.revived
        return needed + spare <= len(self.pool.reclaimable)

    def admit(self, table: BlockTable, hit: PrefixHit, slots: int) -> tuple[int, ...]:
        """Share the hit, take blocks for ``slots`` tokens in all, and let the request run.

        Returns the whole table's block ids.
        """
        if self.prefix_caching:
            self._record_lookup(table, hit)
        if hit.blocks:
            self._share(table, hit.blocks)
        self.journal.append(acts.Admit(self.step, table.name, hit.tokens))
        table.status = RequestStatus.RUNNING
        if table.cached_tokens is None:
            table.cached_tokens = hit.tokens
        table.published = len(hit.blocks)
        table.publish_at = (table.published + 1) * self.block_size if self.prefix_caching else NEVER
        if self.extend(table, slots) is None:
            raise InvariantViolation(f"request {table.name!r} was admitted without room for its {slots} tokens.")
        return table.ids

    def extend(self, table: BlockTable, slots: int) -> tuple[int, ...] | None:
        """Grow a running request's table to ``slots`` tokens.

        Returns the ids of the blocks taken, mostly none; None, with nothing changed, if the pool
        does not hold enough.
        """
        taken = NO_BLOCKS
        if slots > table.capacity:
            count = self.blocks_for(slots - table.capacity)
            if count > len(self.pool.reclaimable):
                return None
            taken = self._take(table, count)
        table.slots = slots
        if slots >= table.publish_at:
            self.publish(table)
        return taken

    def fenced_would_do(self, table: BlockTable, slots: int) -> bool:
        """Whether the next commit gives back enough blocks for ``slots`` tokens, if nobody else takes them."""
        fenced = sum(block.owners == 0 for blocks in self.pool.fenced.values() for block in blocks)
        return self.blocks_for(slots - table.capacity) <= len(self.pool.reclaimable) + fenced

    def publish(self, table: BlockTable) -> None:
        """Make every full block findable whose tokens are known and whose writes are planned."""
        full = min(table.slots, len(table.tokens)) // self.block_size
        first = table.published
        if full <= first:
            return
        if table.published_in_step != self.step:
            table.published_in_step = self.step
            table.published_before_step = first
        size, tokens = self.block_size, table.tokens
        identities = table.chain(full)
        plain = table.plain_chain(full)
        for i in range(first, full):
            parent = identities[i - 1] if i else ROOT
            known = tuple(tokens[i * size : (i + 1) * size])
            self.pool.publish(table.blocks[i], Content(identities[i], parent, known, table.space, plain[i]))
            self.ledger.published(identities[i])
        table.published = full
        table.publish_at = (full + 1) * size
        ids = tuple([block.id for block in table.blocks[first:full]])
        self.journal.append(acts.Publish(self.step, table.name, ids, tuple(identities[first:full])))

    def preempt(self, table: BlockTable, by: BlockTable, writing: Writing | None) -> None:
        """Take everything from a running request, so that ``by`` can go on. It keeps its tokens."""
        self._unpublish_planned(table)
        self._give_back(table, writing)
        table.status = RequestStatus.PREEMPTED
        table.preemptions += 1
        self.journal.append(acts.Preempt(self.step, table.name, by.name))

    def close(self, table: BlockTable, reason: str, writing: Writing | None) -> None:
        """The request has ended: its blocks return, and its name is free again."""
        self._finished[table.name] = _Finished(self.step, table.ids, table.lookup)
        if len(self._finished) > REMEMBERED_REQUESTS:
            self._finished.popitem(last=False)
        if table.blocks:
            self._give_back(table, writing)
        del self._tables[table.name]
        self.journal.append(acts.Close(self.step, table.name, len(table.tokens), reason))

    def launch(self, requests: list[str], counts: tuple[int, ...]) -> None:
        """The plan of this step goes to the runner."""
        self.launched.append(self.step)
        self.journal.append(acts.Launch(self.step, self._same_batch(requests), counts))

    def commit(self, step: int, requests: list[str]) -> None:
        """The result of ``step`` is in: each of ``requests`` gets one token, and its fences fall."""
        self.launched.remove(step)
        self.journal.append(acts.Commit(self.step, step, self._same_batch(requests)))
        if blocks := self.pool.lift_fence(step):
            self.journal.append(acts.Unfence(self.step, tuple(block.id for block in blocks)))

    def move(self, block: int, to: int, writing: Mapping[str, Writing]) -> None:
        """Move the held ``block`` to the reclaimable block ``to``, for all its owners, between two steps.

        Its place in every table, its content and its owners go with it; what ``to`` held is evicted, and
        ``block`` returns as any block without content does. ``writing`` is what launched steps still write,
        by request. The KV itself is the runner's to copy, before anything else happens to either block.

        Raises `MoveRefused`, with nothing changed, if ``block`` is not held or ``to`` not reclaimable, or if
        the next block of what ``to`` holds is findable: it would outlive its parent (I7).
        """
        source, target = self._movable(block), self._landing(to)
        owners = [table for table in self._tables.values() if source in table.blocks]
        writes = [(table, writing[table.name]) for table in owners if table.name in writing]
        fence = max((what.step for table, what in writes if block in self._written(table, what)), default=0)
        self.pool.reclaimable.remove(target)
        if target.content is not None:
            self._evict(owners[0], [target])
        self.pool.move(source, target, fence)
        for table in owners:
            table.blocks[table.blocks.index(source)] = target
        self.journal.append(acts.Move(self.step, tuple(table.name for table in owners), block, to, fence))

    # -- how it does it ----------------------------------------------------------------------------

    def _movable(self, block: int) -> Block:
        blocks = self.pool.blocks
        state = blocks[block].state if 0 <= block < len(blocks) else "outside the pool"
        if state is not BlockState.HELD:
            raise MoveRefused(f"block {block} is {state}, and only a block that somebody holds can be moved.")
        return blocks[block]

    def _landing(self, to: int) -> Block:
        blocks = self.pool.blocks
        state = blocks[to].state if 0 <= to < len(blocks) else "outside the pool"
        if state not in (BlockState.FREE, BlockState.CACHED):
            raise MoveRefused(f"block {to} is {state}; a block can be moved to a free or cached one only.")
        if (content := blocks[to].content) is not None:
            deeper = next((b.id for b in blocks if b.content and b.content.parent == content.identity), None)
            if deeper is not None:
                raise MoveRefused(
                    f"block {to} is cached and block {deeper}, the next of its prefix, would outlive it; "
                    "choose the deepest block of a prefix, or a free one."
                )
        return blocks[to]

    def _same_batch(self, requests: list[str]) -> tuple[str, ...]:
        """An unchanged batch is recorded by one and the same tuple, which keeps a long journal small."""
        batch = tuple(requests)
        if batch != self._batch:
            self._batch = batch
        return self._batch

    def _record_lookup(self, table: BlockTable, hit: PrefixHit) -> None:
        kind = acts.LookupKind.RESUME if table.preemptions else acts.LookupKind.FIRST
        if table.skip_lookup:
            kind = acts.LookupKind.BYPASS
        missed = self.ledger.explain(table, len(hit.blocks))
        table.lookup = acts.Lookup(self.step, table.name, kind, len(table.tokens), hit.tokens, missed)
        self.ledger.count(table.lookup)
        self.journal.append(table.lookup)

    def _share(self, table: BlockTable, blocks: list[Block]) -> None:
        if self.verify_hits:
            self._verify(table, blocks)
        revived = tuple(block.id for block in blocks if not block.owners)
        self.pool.share(blocks)
        self._grow(table, blocks)
        self.journal.append(acts.Share(self.step, table.name, table.ids, revived))

    def _verify(self, table: BlockTable, blocks: list[Block]) -> None:
        size = self.block_size
        for i, block in enumerate(blocks):
            content = block.content
            if content is None or list(content.tokens) != table.tokens[i * size : (i + 1) * size]:
                raise InvariantViolation(
                    f"prefix hit of {table.name!r} on block {block.id} holds other tokens than its block {i} (I6)."
                )

    def _take(self, table: BlockTable, count: int) -> tuple[int, ...]:
        blocks = self.pool.take(count)
        stale = [block for block in blocks if block.content is not None]
        if stale:
            self._evict(table, stale)
        self._grow(table, blocks)
        ids = tuple([block.id for block in blocks])
        self.journal.append(acts.Take(self.step, table.name, ids))
        return ids

    def _grow(self, table: BlockTable, blocks: list[Block]) -> None:
        table.blocks += blocks
        table.capacity = len(table.blocks) * self.block_size

    def _evict(self, table: BlockTable, blocks: list[Block]) -> None:
        for block in blocks:
            assert block.content is not None
            self.ledger.evicted(block.content.identity, self.step, table.name)
        self.pool.unpublish(blocks)
        self.journal.append(acts.Evict(self.step, table.name, tuple(block.id for block in blocks)))

    def _unpublish_planned(self, table: BlockTable) -> None:
        """Withdraw what was published for the plan under way: the victim's part of it will not run."""
        if table.published_in_step == self.step:
            self._unpublish(table, table.blocks[table.published_before_step : table.published])

    def _unpublish(self, table: BlockTable, blocks: list[Block]) -> None:
        if blocks:
            for block in blocks:
                assert block.content is not None
                self.ledger.withdrawn(block.content.identity, self.step, table.name)
            self.pool.unpublish(blocks)
            self.journal.append(acts.Unpublish(self.step, table.name, tuple(block.id for block in blocks)))

    def _give_back(self, table: BlockTable, writing: Writing | None) -> None:
        blocks = table.blocks[::-1]
        written: frozenset[int] = frozenset()
        fence = 0
        if writing is not None:
            fence = writing.step
            written = self._written(table, writing)
        held_back = self.pool.give_back(blocks, fence, written)
        ids = tuple([block.id for block in blocks])
        self.journal.append(acts.Return(self.step, table.name, ids, tuple([i for i in ids if i in written]), fence))
        # A fenced block would join the order of re-use behind its parents and outlive them there (I7).
        self._unpublish(table, [block for block in held_back if block.content is not None])
        table.blocks = []
        table.capacity = table.slots = table.published = table.published_in_step = 0
        table.publish_at = NEVER

    def _written(self, table: BlockTable, writing: Writing) -> frozenset[int]:
        first, last = writing.start // self.block_size, self.blocks_for(writing.end)
        return frozenset(block.id for block in table.blocks[first:last])

    # -- what everybody may read -------------------------------------------------------------------

    def table(self, name: str) -> tuple[int, ...]:
        """The physical block ids of the live request of exactly this name; empty while it waits.

        Raises `FinishedRequest`, naming the step and the last table, or `UnknownRequest`.
        """
        return self._live(name).ids

    def explain(self, name: str) -> Explanation:
        """Why the request's last admission hit what it hit. Finished requests can still be asked about."""
        finished = self._finished.get(name)
        lookup = finished.lookup if finished else self._live(name).lookup
        return Explanation(name, self.prefix_caching, self.block_size, lookup, ended=finished is not None)

    def snapshot(self) -> Snapshot:
        """The whole accounting now. Linear in the pool's size."""
        return self._snapshot(self.journal.step, len(self.journal))

    def live_tables(self) -> Sequence[BlockTable]:
        """The tables of the live requests, in order of arrival, for checkers."""
        return tuple(self._tables.values())

    def _live(self, name: str) -> BlockTable:
        table = self._tables.get(name)
        if table is not None:
            return table
        if (finished := self._finished.get(name)) is not None:
            raise FinishedRequest(
                f"request {name!r} finished in step {finished.step}; its last table was {finished.table}.",
                finished.step,
                finished.table,
            )
        live = ", ".join(list(self._tables)[:8]) or "none"
        raise UnknownRequest(f"no request is named {name!r}; names are matched exactly (live: {live}).")

    def _snapshot(self, step: int, acts: int) -> Snapshot:
        pool = self.pool
        view = PoolView(
            name="kv",
            block_size=self.block_size,
            reuse_policy=pool.reclaimable.name,
            owners=tuple([block.owners for block in pool.blocks]),
            identities=tuple([block.content.identity if block.content else None for block in pool.blocks]),
            fences=tuple([block.fence for block in pool.blocks]),
            reuse_order=tuple([block.id for block in pool.reclaimable]),
            taken=pool.taken,
            returned=pool.returned,
        )
        return Snapshot(
            step=step,
            acts=acts,
            prefix_caching=self.prefix_caching,
            groups=(GroupView(FULL_ATTENTION, self.block_size),),
            pools=(view,),
            requests=tuple([_view(table) for table in self._tables.values()]),
            launched=tuple(self.launched),
            hits=dict(self.ledger.hits),
            missed=dict(self.ledger.missed),
            evictions=self.ledger.evictions,
        )


def _view(table: BlockTable) -> RequestView:
    return RequestView(
        name=table.name,
        status=table.status,
        tokens=len(table.tokens),
        slots=table.slots,
        tables=(table.ids,),
        cached_tokens=table.cached_tokens,
        preemptions=table.preemptions,
    )
