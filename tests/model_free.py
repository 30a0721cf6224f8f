"""An engine without a model: forced tokens over a simulated KV memory, with its blocks counted after every step.

Two things here share no code with what they check. `SlotMemory` keeps, for every slot of the pool, which prefix
was written to it, and reads every row of every plan back: a block shared, re-used or evicted wrongly shows as
another prefix. `account` counts blocks from the tables up. The engine's own checkers run beside them.
"""

from __future__ import annotations

import os
import zlib
from collections import Counter, deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from hypothesis import HealthCheck, Phase, settings

from pellucid.engine.config import SchedulerConfig
from pellucid.engine.core import EngineCore
from pellucid.engine.scheduler import Progress, Scheduler
from pellucid.engine.sequence import Sequence
from pellucid.kv import BlockState, KVManager, Snapshot
from pellucid.kv.fold import Fold
from pellucid.kv.identity import ROOT, identity
from pellucid.kv.invariants import Auditor
from pellucid.kv.table import BlockTable
from pellucid.plan import Request, SamplingParams, StepPlan, StepResult
from pellucid.runtime.forced import ForcedRunner

DEPTH = int(os.environ.get("PELLUCID_TEST_DEPTH", "1"))
"""1: a fixed, quick set of examples. More: that many times as many, drawn afresh, printed when one fails."""

STEPS_WITHOUT_PROGRESS = 100


def examples(count: int, steps: int = 50) -> settings:
    """Hypothesis settings for ``count`` examples (of at most ``steps`` steps, for a state machine)."""
    return settings(
        max_examples=count * DEPTH,
        stateful_step_count=steps,
        derandomize=DEPTH == 1,
        database=None,
        deadline=None,
        print_blob=True,
        report_multiple_bugs=False,
        phases=[Phase.explicit, Phase.generate, Phase.shrink],
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    )


def forced_token(name: str, index: int) -> int:
    """The token that request ``name`` "samples" as its output number ``index``, unless a test says otherwise."""
    return 500 + zlib.crc32(f"{name}/{index}".encode()) % 400


@dataclass
class _Row:
    """One request as the memory sees it: nothing but what the plans said."""

    space: object
    tokens: list[int]
    prompt_len: int
    name: str
    table: list[int] = field(default_factory=list)


class SlotMemory:
    """An executor: forced tokens, and a KV memory that remembers which prefix was written to which slot.

    The KV of a position depends on every token before it and on the adapter, so a slot holds the number of
    a whole prefix, the same number for the same (namespace, tokens). Within a plan all writes come before all
    reads, as in an attention backend. ``writing`` maps each plan in flight to the blocks it writes to.
    """

    def __init__(self, block_size: int, token: Callable[[str, int], int]) -> None:
        self.spaces: dict[int, object] = {}  # handle -> salt and adapter
        self.writing: dict[int, set[int]] = {}
        self.plans: list[StepPlan] = []
        self._block_size = block_size
        self._token = token
        self._forced = ForcedRunner(token)
        self._rows: dict[int, _Row] = {}
        self._slots: dict[tuple[int, int], int] = {}
        self._prefixes: dict[tuple[object, int], int] = {}

    def launch(self, plan: StepPlan) -> None:
        self._forced.launch(plan)
        self.plans.append(plan)
        for handle in plan.released:
            del self._rows[handle]
        for admission in plan.admitted:
            space = self.spaces[admission.handle]
            row = _Row(space, list(admission.tokens), admission.prompt_len, admission.name)
            self._rows[admission.handle] = row
        for block, to in plan.moves:
            for row in self._rows.values():
                row.table = [to if each == block else each for each in row.table]
        for handle, blocks in plan.new_blocks:
            self._rows[handle].table += blocks
        for block, to in plan.copies:
            self._copy(block, to)
        self.writing[plan.step] = set()
        for handle, start, count in zip(plan.handles, plan.starts, plan.counts, strict=True):
            self._write(plan.step, self._rows[handle], start, start + count)
        for handle, start, count in zip(plan.handles, plan.starts, plan.counts, strict=True):
            self._read(plan.step, self._rows[handle], start + count)
        for handle, samples in zip(plan.handles, plan.samples, strict=True):
            if samples:
                row = self._rows[handle]
                row.tokens.append(self._token(row.name, len(row.tokens) - row.prompt_len))

    def collect(self) -> StepResult:
        result = self._forced.collect()
        del self.writing[result.step]
        return result

    def _copy(self, source: int, to: int) -> None:
        for offset in range(self._block_size):
            self._slots.pop((to, offset), None)
            if (source, offset) in self._slots:
                self._slots[to, offset] = self._slots[source, offset]

    def _write(self, step: int, row: _Row, start: int, end: int) -> None:
        prefixes = self._chain(row, end)
        for position in range(start, end):
            block, offset = divmod(position, self._block_size)
            assert row.table[block] != 0, f"{row.name} writes to the reserved block"
            self._slots[row.table[block], offset] = prefixes[position]
            self.writing[step].add(row.table[block])

    def _read(self, step: int, row: _Row, end: int) -> None:
        prefixes = self._chain(row, end)
        for position in range(end):
            block, offset = divmod(position, self._block_size)
            found = self._slots.get((row.table[block], offset))
            assert found == prefixes[position], (
                f"step {step}: {row.name} reads position {position} in block {row.table[block]} "
                f"and finds {'nothing' if found is None else 'the KV of another prefix'}"
            )

    def _chain(self, row: _Row, end: int) -> list[int]:
        numbers: list[int] = []
        before: object = row.space
        for token in row.tokens[:end]:
            before = self._prefixes.setdefault((before, token), len(self._prefixes))
            numbers.append(before)
        assert len(numbers) == end, f"{row.name} computes {end} tokens and has {len(numbers)}"
        return numbers


def account(kv: KVManager) -> None:
    """Count every block from the tables up, and recompute every hash from the tokens."""
    snapshot = kv.snapshot()
    pool, size = snapshot.pool, kv.block_size
    owners = Counter(block for request in snapshot.requests for block in request.blocks)
    assert list(pool.owners) == [owners[block] for block in range(pool.total)]
    assert pool.taken - pool.returned == sum(owners.values())
    sets = {state: {b for b in range(pool.total) if pool.state(b) is state} for state in BlockState}
    assert sets[BlockState.RESERVED] == {0}
    assert sets[BlockState.HELD] == set(owners)
    assert sum(map(len, sets.values())) == pool.total
    assert len(pool.reuse_order) == len(set(pool.reuse_order)) == pool.reclaimable
    assert set(pool.reuse_order) == sets[BlockState.CACHED] | sets[BlockState.FREE]
    for request in snapshot.requests:
        assert len(request.blocks) == len(set(request.blocks)) == -(-request.slots // size), request
        assert bool(request.blocks) == (request.status == "running"), request
    _account_contents(kv)


def _account_contents(kv: KVManager) -> None:
    found = {block.id: key for key, blocks in kv.pool.index for block in blocks}
    contents = {block.id: block.content for block in kv.pool.blocks if block.content is not None}
    assert found == {block: content.identity for block, content in contents.items()}
    for content in contents.values():
        assert content.identity == identity(content.parent, content.tokens, content.namespace)
        assert content.parent == ROOT or content.parent in found.values(), "findable, and its parent is not"
    for table in kv.live_tables():
        parent = ROOT
        for i, block in enumerate(table.blocks[: table.published]):
            tokens = table.tokens[i * kv.block_size : (i + 1) * kv.block_size]
            parent = identity(parent, tokens, table.space)
            assert found[block.id] == parent


class Bench:
    """An engine over a `SlotMemory`, checked after everything that happens to it.

    ``outputs`` collects each submission's tokens by handle, ``expected`` what they must come to without an abort;
    ``forced`` gives names their own output tokens.
    """

    def __init__(
        self,
        *,
        num_blocks: int,
        block_size: int = 4,
        asynchronous: bool = False,
        enable_prefix_caching: bool = True,
        reuse_policy: str = "free-first",
        shuffle_blocks: int | None = None,
        journal_capacity: int | None = None,
        **config: Any,
    ) -> None:
        self.kv = KVManager(
            num_blocks,
            block_size,
            enable_prefix_caching=enable_prefix_caching,
            reuse_policy=reuse_policy,
            shuffle_blocks=shuffle_blocks,
            journal_capacity=journal_capacity,
            verify_hits=True,
        )
        self.scheduler = Scheduler(self.kv, SchedulerConfig(**{"max_model_len": 64, **config}))
        self.forced: dict[str, list[int]] = {}
        self.memory = SlotMemory(block_size, self.token)
        self.core = EngineCore(self.scheduler, self.memory, asynchronous=asynchronous)
        self.names: dict[int, str] = {}
        self.outputs: dict[int, list[int]] = {}
        self.expected: dict[int, list[int]] = {}
        self.auditor = Auditor(self.kv)
        self._fold = Fold(self.kv.journal.base)
        self._folded = 0
        self._computed: dict[str, int] = {}

    def token(self, name: str, index: int) -> int:
        own = self.forced.get(name, ())
        return own[index] if index < len(own) else forced_token(name, index)

    def _expect(self, request: Request) -> list[int]:
        """What the request must come to, from its parameters alone."""
        sampling, config = request.sampling, self.scheduler.config
        stops = set(sampling.stop_token_ids) | (set() if sampling.ignore_eos else set(config.eos_token_ids))
        room = config.max_model_len - len(request.prompt)
        most = room if sampling.max_tokens is None else min(room, sampling.max_tokens)
        output: list[int] = []
        while len(output) < most:
            output.append(self.token(request.name, len(output)))
            if output[-1] in stops and len(output) >= sampling.min_tokens:
                break
        return output

    # -- driving -----------------------------------------------------------------------------------

    def add(
        self,
        name: str,
        prompt: Iterable[int],
        max_tokens: int | None = 4,
        *,
        output: list[int] | None = None,
        salt: str | None = None,
        adapter: tuple[str, str] | None = None,
        priority: int = 0,
        **sampling: Any,
    ) -> Sequence:
        """Submit a request whose output will be ``output``, and beyond it `forced_token`."""
        params = SamplingParams(temperature=0, max_tokens=max_tokens, **sampling)
        request = Request(
            name=name, prompt=tuple(prompt), sampling=params, priority=priority, salt=salt, adapter=adapter
        )
        sequence = self.scheduler.add(request)
        self.memory.spaces[sequence.handle] = ("space", salt, adapter)
        self.forced[name] = output or []
        self.names[sequence.handle] = name
        self.outputs[sequence.handle] = []
        self.expected[sequence.handle] = self._expect(request)
        self.check()
        return sequence

    def abort(self, name: str) -> Sequence:
        sequence = self.scheduler.abort(name)
        self.check()
        return sequence

    def move(self, block: int, to: int) -> None:
        self.core.move(block, to)
        self.check()

    def step(self) -> list[Progress]:
        return self._seen(self.core.step())

    def launch(self) -> StepPlan:
        """Half a step: plan and launch."""
        plan = self.scheduler.schedule()
        if plan.handles:
            self.memory.launch(plan)
        self.check()
        return plan

    def collect(self) -> list[Progress]:
        """The other half: take the oldest launched plan's result."""
        return self._seen(self.scheduler.commit(self.memory.collect()))

    def drain(self) -> list[Progress]:
        """Step until nothing is left, failing if `STEPS_WITHOUT_PROGRESS` steps bring no request further."""
        progress: list[Progress] = []
        recent: deque[object] = deque(maxlen=STEPS_WITHOUT_PROGRESS)
        while self.core.has_unfinished_requests():
            progress += self.step()
            recent.append(self._mark())
            assert len(recent) < STEPS_WITHOUT_PROGRESS or recent[0] != recent[-1], f"no progress: {self.kv.snapshot()}"
        self.check_baseline()
        return progress

    def run(self, name: str, prompt: Iterable[int], max_tokens: int = 1, **options: Any) -> Sequence:
        """Submit one request and drain."""
        sequence = self.add(name, prompt, max_tokens, **options)
        self.drain()
        return sequence

    def _mark(self) -> object:
        """Changes whenever a request finishes or gets further than it ever was."""
        for request in self.kv.snapshot().requests:
            self._computed[request.name] = max(self._computed.get(request.name, 0), request.slots)
        return len(self.kv.live_tables()), dict(self._computed)

    def _seen(self, progress: list[Progress]) -> list[Progress]:
        for update in progress:
            self.outputs[update.sequence.handle].append(update.token)
        self.check()
        return progress

    # -- checking ----------------------------------------------------------------------------------

    def check(self) -> None:
        account(self.kv)
        reclaimable = {block.id for block in self.kv.pool.reclaimable}
        for step, blocks in self.memory.writing.items():
            assert not blocks & reclaimable, f"reclaimable while step {step} may write: {blocks & reclaimable}"
        if self.kv.journal.capacity is not None:  # a follower may have missed acts, and so has the auditor
            assert self.kv.journal.fold() == self.snapshot
            return
        for act in self.kv.journal.since(self._folded):
            self._fold.apply(act)
        self._folded = len(self.kv.journal)
        assert self._fold.snapshot() == self.snapshot
        self.auditor.require()

    def check_baseline(self) -> None:
        """With nobody left, every usable block is reclaimable."""
        pool = self.snapshot.pool
        assert (pool.held, pool.fenced, pool.reclaimable) == (0, 0, pool.usable)
        assert not self.kv.launched

    @property
    def snapshot(self) -> Snapshot:
        return self.kv.snapshot()

    def table(self, name: str) -> tuple[int, ...]:
        return self.kv.table(name)

    def hit(self, name: str) -> int:
        """Tokens that the last admission of ``name`` found in the cache."""
        return self.kv.explain(name).hit


# -- a KV manager by hand, without a scheduler ---------------------------------------------------------


def begin(kv: KVManager, name: str, prompt: Iterable[int], slots: int | None = None, **options: Any) -> BlockTable:
    """Open and admit a request in a step of its own, which is committed before this returns.

    ``slots`` of its tokens, all by default and the hit included, are computed.
    """
    table = kv.open(name, list(prompt), **options)
    kv.begin_step()
    hit = kv.match(table)
    slots = len(table.tokens) if slots is None else slots
    kv.admit(table, hit, slots)
    kv.launch([name], (slots - hit.tokens,))
    kv.commit(kv.step, [])
    return table


def grow(kv: KVManager, table: BlockTable, *tokens: int) -> tuple[int, ...] | None:
    """Append ``tokens`` and compute them in a step of their own; the ids taken, None if the pool is empty."""
    table.tokens.extend(tokens)
    kv.begin_step()
    slots = table.slots
    taken = kv.extend(table, len(table.tokens))
    if taken is not None:
        kv.launch([table.name], (len(table.tokens) - slots,))
        kv.commit(kv.step, [])
    return taken


def end(kv: KVManager, table: BlockTable) -> None:
    """Close a request that no launched step writes to."""
    kv.close(table, "length", None)


def run(kv: KVManager, name: str, prompt: Iterable[int], **options: Any) -> tuple[int, ...]:
    """`begin` and `end`; the block ids the request had."""
    table = begin(kv, name, prompt, **options)
    ids = table.ids
    end(kv, table)
    return ids
