"""The accounting of an observed vLLM, kept by differences: who owns what, what is findable, and the acts so far.

It is told what vLLM planned, got and gave up, and turns that into the acts of our own journal, in the order in
which they must have happened. A step of decoding touches only the requests that grow or fill a block in it, so
its cost does not depend on how long the tables are. What it believes is compared with vLLM's own counts, never
written over them.
"""

from __future__ import annotations

import sys
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Container, Iterable, Sequence
from typing import Any, NamedTuple

from msgspec.structs import replace

from pellucid.attach.findable import Findable, Origin
from pellucid.attach.layout import SLIDING_WINDOW, Layout, identity
from pellucid.attach.names import Names
from pellucid.attach.seen import Seen, SeenTable
from pellucid.kv import acts
from pellucid.kv.block import RESERVED_BLOCK
from pellucid.kv.ledger import MissLedger
from pellucid.kv.table import RequestStatus

Tables = tuple[tuple[int, ...], ...]

REMEMBERED_REQUESTS = 4_096


class Admission(NamedTuple):
    """A request that starts or resumes in this step, with its whole tables and the tokens found in the cache."""

    tables: Tables
    computed: int


class Ended(NamedTuple):
    """What is remembered of a request that has left: the step, its last tables, and its last lookup."""

    step: int
    tables: Tables
    lookup: acts.Lookup | None


class Mirror:
    """What is known of one vLLM, from ``layout`` on.

    ``acts`` collects what has happened since they were last taken, while somebody is ``listening``; ``violations``
    what did not add up. The last tables of ended requests are kept if it ``remembers_tables``: in a server of long
    prompts they would be many.
    """

    def __init__(self, layout: Layout, names: Names, *, remembers_tables: bool = True) -> None:
        self._remembers_tables = remembers_tables
        self.layout = layout
        self.names = names
        self.index = Findable(len(layout.blocks))
        self.ledger = MissLedger(self.index)
        self.requests: dict[str, Seen] = {}
        self.step = 0
        self.launched: list[int] = []
        self.acts: list[acts.AnyAct] = []
        self.violations: list[str] = []
        self.owners = [0] * len(layout.blocks)
        self.contents = self.index.contents
        self.taken = self.returned = 0
        self.ended: OrderedDict[str, Ended] = OrderedDict()
        self.looks: defaultdict[int, list[Seen]] = defaultdict(list)  # by step: who may fill a block in it
        self.reclaimable = 0
        self._batch: tuple[str, ...] = ()
        self._batch_names: tuple[str, ...] = ()
        self.closed = 0
        self.listening = True
        self.news: int | None = None  # the step of the last act since anybody was told, None without one
        self.told = 0  # the step of the last act that anybody was told of
        self.has_windows = any(group.kind == SLIDING_WINDOW for group in layout.groups)
        self._admitted = 0
        self._read()

    # -- what vLLM does ----------------------------------------------------------------------------

    def open(self, request: Any) -> Seen:
        """A request has joined the waiting queue. A name that is used again means the new one from now on."""
        seen = self._meet(request)
        self.ended.pop(seen.name, None)
        self._say(acts.Open, seen.name, request.num_tokens, seen.space)
        return seen

    def _meet(self, request: Any) -> Seen:
        seen = self.requests[request.request_id] = Seen(request, self.names.open(request.request_id), self.layout)
        if seen.space and not self.index.namespaces:
            self.index.namespaces = True
            for other in self.requests.values():
                self._recognise(other, range(len(other.tables[0].blocks)))
        return seen

    def admit(self, seen: Seen, admission: Admission) -> None:
        """A waiting request runs from now on."""
        if self.layout.caching:
            self._lookup(seen, admission.computed)
        rest = []
        for table, blocks in zip(seen.tables, admission.tables, strict=True):
            hits = admission.computed // table.size
            if hits:
                self._share(seen, table, blocks[:hits])
            rest.append(blocks[hits:])
        self._say(acts.Admit, seen.name, admission.computed)
        seen.admitted(admission.computed, self._admitted)
        self._admitted += 1
        self.grow(seen, rest)

    def grow(self, seen: Seen, blocks: Sequence[Sequence[int]]) -> None:
        """Blocks are appended to the tables of a running request, one sequence for each KV group."""
        for table, new in zip(seen.tables, blocks, strict=True):
            if new:
                self._take(seen, table, tuple(new))

    def fill(self, seen: Seen) -> None:
        """Publish what vLLM has made findable of a request's full blocks, and note when to look again."""
        if not self.layout.caching:
            return
        known = self._publish_full(seen)
        if self.looks_later:
            return
        left = sys.maxsize
        for table in seen.tables:
            next_one = known // table.size if table.windowed else table.published
            wait = (next_one + 1) * table.size - known
            if wait < left:
                left = wait
        seen.look_at = self.step + (left if left > 0 else 1)
        self.looks[seen.look_at].append(seen)

    def _publish_full(self, seen: Seen) -> int:
        """The publishing of `fill`; returns how many tokens have been computed, of those that are known."""
        known: int = seen.request.num_computed_tokens
        if self.layout.plans_ahead:  # then the last of them may not be known yet
            known = min(known, seen.request.num_tokens)
        for table in seen.tables:
            full = known // table.size
            if full > table.published:
                self._publish(seen, table, full)
        return known

    @property
    def looks_later(self) -> bool:
        """Whether blocks may fill unseen until somebody asks (`look`): nobody listens, and no window leaves any behind.

        To look at one block in every step costs several trips to memory; at the blocks of many steps, not much more.
        """
        return not (self.listening or self.has_windows)

    def look(self) -> None:
        """Publish whatever has been filled unseen."""
        if self.looks_later and self.layout.caching:
            for seen in self.requests.values():
                if seen.status is RequestStatus.RUNNING:
                    self._publish_full(seen)

    def look_at(self, seen: Seen) -> None:
        """The same for a request whose blocks vLLM is about to take: afterwards others may have them."""
        if self.looks_later and self.layout.caching:
            self._publish_full(seen)

    def listen(self, listening: bool) -> None:
        """Somebody listens from now on, or nobody. What was filled unseen is not told of: it is in the picture."""
        self.look()
        self.listening = listening
        self.looks.clear()
        if not self.looks_later:
            for seen in self.requests.values():
                if seen.running:
                    self.fill(seen)

    def fill_early(self) -> None:
        """Publish what a result has filled: a scheduler that plans one step ahead learns a block's last token there."""
        for seen in self.looks.get(self.step + 1, ()):
            if seen.look_at == self.step + 1:
                self._publish_all(seen)

    def _publish_all(self, seen: Seen) -> None:
        for table in seen.tables:
            self._publish(seen, table, len(table.blocks))

    def due(self, planned: Container[str]) -> list[Seen]:
        """Whoever of those ``planned`` may fill a block in this step, if every plan since had one token for it."""
        found = []
        for seen in self.looks.pop(self.step, ()):
            if seen.look_at != self.step:
                continue
            if seen.id in planned:
                found.append(seen)
            else:
                seen.look_at = self.step + 1
                self.looks[seen.look_at].append(seen)
        return found

    def passed(self, counts: dict[str, int]) -> list[Seen]:
        """Whoever of those planned has a sliding window that has passed a whole block, so that vLLM gives it up."""
        found = []
        for name, count in counts.items():
            seen = self.requests[name]
            if seen.running and self._left_behind(seen, seen.request.num_computed_tokens - count):
                found.append(seen)
        return found

    def _left_behind(self, seen: Seen, computed: int) -> bool:
        for table, group in zip(seen.tables, self.layout.groups, strict=True):
            place = (computed - group.window + 1) // group.block_size - 1 if group.window else -1
            if 0 <= place < len(table.blocks) and table.blocks[place] != RESERVED_BLOCK:
                return True
        return False

    def drop(self, seen: Seen, tables: Tables) -> None:
        """Give up what its sliding windows have left behind, as ``tables``, vLLM's own, show it."""
        for table, now in zip(seen.tables, tables, strict=True):
            held = enumerate(table.blocks)
            places = [place for place, block in held if block != RESERVED_BLOCK and now[place] == RESERVED_BLOCK]
            if places:
                places.reverse()  # vLLM returns the last one first
                self._drop(seen, table, places)

    def launch(self, counts: dict[str, int]) -> tuple[str, ...]:
        """The plan goes to the workers: so many tokens of each request. Returns their names if anybody listens."""
        self.launched.append(self.step)
        if not self.listening:
            self.news = self.step
            return ()
        batch = tuple(counts)
        if batch != self._batch:  # an unchanged one keeps its names: that is quick, and a long journal stays small
            self._batch = batch
            self._batch_names = tuple([self.requests[each].name for each in batch])
        self._say(acts.Launch, self._batch_names, tuple(counts.values()))
        return self._batch_names

    def commit(self, step: int, names: tuple[str, ...]) -> None:
        """The result of ``step`` is in: each of ``names`` got one token."""
        self.launched.remove(step)
        self._say(acts.Commit, step, names)

    def preempt(self, seen: Seen, by: str) -> None:
        """A running request went back to the waiting queue, so that ``by`` gets blocks."""
        self._give_back(seen)
        seen.preempted()
        self._say(acts.Preempt, seen.name, by)

    def close(self, seen: Seen, reason: str) -> None:
        """A request has ended."""
        self._publish_all(seen)
        self.ended.pop(seen.name, None)
        tables = seen.blocks if self._remembers_tables else ()
        self.ended[seen.name] = Ended(self.step, tables, seen.lookup)
        if len(self.ended) > REMEMBERED_REQUESTS:
            self.ended.popitem(last=False)
        self._give_back(seen)
        seen.look_at = 0
        del self.requests[seen.id]
        self.names.close(seen.id)
        self.closed += 1
        self._batch = ()  # its id, or its name, may come again
        self._say(acts.Close, seen.name, seen.request.num_tokens, reason)

    def catch_up(self, seen: Seen, tables: Tables) -> None:
        """What a victim gave up and got in the very step in which it was pre-empted, of which no plan tells."""
        if self.has_windows:
            self.drop(seen, tables)
        self.grow(seen, tuple(now[len(had) :] for had, now in zip(seen.blocks, tables, strict=True)))
        self._publish_all(seen)

    def forget(self) -> None:
        """The prefix cache was reset."""
        findable = tuple(block for block, content in enumerate(self.contents) if content is not None)
        for block in findable:
            self.index.discard(block)
        if findable:
            self._say(acts.Forget, findable)
        for seen in self.requests.values():
            for table in seen.tables:
                table.published = 0

    def _say(self, act: Callable[..., acts.AnyAct], *fields: Any) -> None:
        """``act`` has happened in this step; it is put into words for those who listen.

        Of what happens in most steps (blocks taken and filled) this is not even told: there is a launch to tell of.
        """
        self.news = self.step
        if self.listening:
            self.acts.append(act(self.step, *fields))

    # -- how it is accounted -----------------------------------------------------------------------

    def _lookup(self, seen: Seen, hit: int) -> None:
        self.look()
        kind = acts.LookupKind.RESUME if seen.preemptions else acts.LookupKind.FIRST
        if seen.skip_lookup:
            kind = acts.LookupKind.BYPASS
        asked = seen.ask(self.layout, self.index)
        missed = self.ledger.explain(asked, hit // seen.block_size)
        if len(seen.tables) > 1:
            missed = tuple([_as_far_as_known(miss, len(asked.tokens), seen.block_size) for miss in missed])
        seen.lookup = acts.Lookup(self.step, seen.name, kind, len(asked.tokens), hit, missed)
        self.ledger.count(seen.lookup)
        self.news = self.step
        if self.listening:
            self.acts.append(seen.lookup)

    def _share(self, seen: Seen, table: SeenTable, blocks: tuple[int, ...]) -> None:
        held = [block for block in blocks if block != RESERVED_BLOCK]
        revived = tuple([block for block in held if not self.owners[block]])
        for block in held:
            self.owners[block] += 1
        self.reclaimable -= len(revived)
        self.taken += len(held)
        table.blocks += blocks
        table.published = len(blocks)
        self._say(acts.Share, seen.name, blocks, revived, table.group)

    def _take(self, seen: Seen, table: SeenTable, blocks: tuple[int, ...]) -> None:
        owners, contents = self.owners, self.contents
        stale: list[int] = []
        for block in blocks:
            if contents[block] is not None:
                stale.append(block)
            if owners[block]:
                self.violations.append(f"block {block} went to {seen.name!r} while it had {owners[block]} owners.")
            owners[block] = 1
        if stale:
            for block in stale:
                self.ledger.evicted(self.index.discard(block), self.step, seen.name)
            self._say(acts.Evict, seen.name, tuple(stale))
        self.reclaimable -= len(blocks)
        self.taken += len(blocks)
        table.blocks += blocks
        if self.listening:
            self._say(acts.Take, seen.name, blocks, table.group)

    def _publish(self, seen: Seen, table: SeenTable, full: int) -> None:
        """Of the first ``full`` blocks, those that vLLM has given a hash since the last look, in order.

        With full attention they get theirs one after the other. Of a sliding window some never do.
        """
        contents, blocks, settled = self.contents, self.layout.blocks, True
        found: list[int] = []
        keys: list[bytes] = []
        for place, block in enumerate(table.blocks[table.published : full], table.published):
            if block != RESERVED_BLOCK and contents[block] is None:
                key = blocks[block].block_hash
                if not isinstance(key, bytes):
                    key = identity(key)
                if key is not None:
                    self.index.add(block, key)
                    self.ledger.published(key)
                    found.append(block)
                    keys.append(key)
                    if self.index.namespaces and not table.group:
                        self._recognise(seen, (place,))
                elif table.windowed:
                    settled = False
                else:
                    break
            if settled:
                table.published = place + 1
        if found and self.listening:
            self._say(acts.Publish, seen.name, tuple(found), tuple(keys))

    def _recognise(self, seen: Seen, places: Iterable[int]) -> None:
        """Tell the index where the tokens in those of the blocks at ``places`` that are findable came from.

        Only the first KV group is asked for it. Nothing else here looks at tokens: where there is no namespace to tell
        from others, it is put off until the blocks are given up, when there are many at once.
        """
        blocks, contents = seen.tables[0].blocks, self.contents
        places = [place for place in places if blocks[place] != RESERVED_BLOCK and contents[blocks[place]] is not None]
        if places:
            chain = seen.plain_chain(max(places) + 1)
            for place in places:
                self.index.recognise(blocks[place], Origin(chain[place], seen.space))

    def _drop(self, seen: Seen, table: SeenTable, places: list[int]) -> None:
        if not (table.group or self.index.namespaces):
            self._recognise(seen, places)
        blocks = tuple([table.blocks[place] for place in places])
        for place in places:
            table.blocks[place] = RESERVED_BLOCK
        self._release(blocks)
        self._say(acts.Drop, seen.name, blocks, tuple(places), table.group)

    def _give_back(self, seen: Seen) -> None:
        if not self.index.namespaces:
            self._recognise(seen, range(len(seen.tables[0].blocks)))
        for table in seen.tables:
            blocks = tuple([block for block in reversed(table.blocks) if block != RESERVED_BLOCK])
            if blocks:
                self._release(blocks)
                self._say(acts.Return, seen.name, blocks, (), 0, table.group)
        seen.emptied()

    def _release(self, blocks: Iterable[int]) -> None:
        owners = self.owners
        for block in blocks:
            owners[block] -= 1
            if not owners[block]:
                self.reclaimable += 1
            self.returned += 1

    # -- where it begins ---------------------------------------------------------------------------

    def _read(self) -> None:
        """Take over what vLLM holds at this moment."""
        layout = self.layout
        for block in range(len(layout.blocks)):
            if (key := layout.identity(block)) is not None:
                self.index.add(block, key)
        for request in layout.scheduler.requests.values():
            self._take_over(self._meet(request), layout.tables(request.request_id))
        self.reclaimable = layout.pool.get_num_free_blocks()

    def _take_over(self, seen: Seen, tables: Tables) -> None:
        for table, blocks in zip(seen.tables, tables, strict=True):
            table.blocks += blocks
            held = [block for block in blocks if block != RESERVED_BLOCK]
            for block in held:
                self.owners[block] += 1
            self.taken += len(held)
            unpublished = (i for i, block in enumerate(blocks) if block and self.contents[block] is None)
            table.published = next(unpublished, len(blocks))
        if any(tables):
            seen.status = RequestStatus.RUNNING
            seen.order, self._admitted = self._admitted, self._admitted + 1
            self.fill(seen)


def _as_far_as_known(miss: acts.Miss, asked: int, size: int) -> acts.Miss:
    """Of a block that is in every KV group and was not hit, though tokens follow it, no group can be blamed."""
    if miss.reason is acts.MissReason.LAST_BLOCK and (miss.tokens > size or (miss.block + 1) * size < asked):
        return replace(miss, reason=acts.MissReason.UNKNOWN)
    return miss
