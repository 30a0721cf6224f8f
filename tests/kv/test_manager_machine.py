"""The KV manager under random use, against `PlainKV`: every table, owner, fence and the whole order of re-use.

The machine plays a scheduler that decides at random: between two steps it moves blocks about; it grows and pre-empts
running requests, then admits waiting ones, launches the plan, and may leave it uncommitted while the next is made.
"""

from __future__ import annotations

from typing import NamedTuple

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from model_free import account, examples
from pellucid.errors import MoveRefused
from pellucid.kv import REUSE_POLICIES, KVManager
from pellucid.kv.invariants import Auditor
from pellucid.kv.manager import Writing
from pellucid.kv.table import BlockTable, RequestStatus
from plain_kv import PlainKV, PlainTable

TOKENS = [1, 2, 1, 1, 2, 2, 1, 2, 1, 1, 1, 2]

Opening = tuple[int, list[int], str | None, bool]  # leading TOKENS, own tail, salt, bypass
Rows = dict[str, tuple[int, int, bool]]  # a plan: per request start, end, and whether it samples

which = st.integers(0, 99)
openings = st.lists(
    st.tuples(
        st.integers(1, len(TOKENS)),
        st.lists(st.integers(1, 3), max_size=3),
        st.sampled_from([None, None, None, "s"]),
        st.sampled_from([False, False, False, True]),
    ),
    min_size=1,
    max_size=3,
)


class Step(NamedTuple):
    """What one step decides, as far as it turns out to be possible; requests and blocks by a number that picks one."""

    moved: list[tuple[int, int]]
    grown: list[tuple[int, int]]
    victims: list[int]
    admitted: list[tuple[int, int]]
    ahead: bool
    token: int
    endings: set[int]


steps = st.builds(
    Step,
    st.sampled_from([0, 0, 1, 3]).flatmap(
        lambda count: st.lists(st.tuples(which, which), min_size=count, max_size=count)
    ),
    st.lists(st.tuples(which, st.integers(1, 6)), min_size=2, max_size=4),
    st.sampled_from([0, 0, 0, 1, 2]).flatmap(lambda count: st.lists(which, min_size=count, max_size=count)),
    st.lists(st.tuples(which, st.integers(1, 16)), min_size=1, max_size=3),
    st.booleans(),
    st.integers(1, 3),
    st.sampled_from([set(), set(), {0}, {1}]),
)


class ManagerMachine(RuleBasedStateMachine):
    @initialize(
        block_size=st.sampled_from([1, 2, 4]),
        slots=st.integers(3, 9).map(lambda blocks: 4 * blocks),
        policy=st.sampled_from(sorted(REUSE_POLICIES)),
        caching=st.sampled_from([True, True, True, False]),
    )
    def build(self, block_size: int, slots: int, policy: str, caching: bool) -> None:
        blocks = slots // block_size + 1
        self.kv = KVManager(
            blocks,
            block_size,
            enable_prefix_caching=caching,
            reuse_policy=policy,
            journal_capacity=None,
            verify_hits=True,
        )
        self.plain = PlainKV(blocks, block_size, policy, caching)
        self.auditor = Auditor(self.kv)
        self.tables: dict[str, BlockTable] = {}
        self.pending: dict[str, int] = {}  # tokens that launched steps make and nobody has seen
        self.planned: Rows = {}
        self.launched: dict[int, Rows] = {}
        self.opened = 0

    # -- who is there ------------------------------------------------------------------------------

    def pick(self, number: int, *statuses: RequestStatus) -> str | None:
        """Some request of this status that is not in the plan yet and whose tokens are all known, or None."""
        names = [name for name, table in self.tables.items() if table.status in statuses and name not in self.planned]
        if RequestStatus.RUNNING not in statuses:
            names = [name for name in names if not self.pending[name]]
        return names[number % len(names)] if names else None

    def writing(self, name: str) -> Writing | None:
        for step, rows in self.launched.items():
            if name in rows:
                return Writing(step, *rows[name][:2])
        return None

    # -- what happens ------------------------------------------------------------------------------

    @rule(opened=openings, steps=st.lists(steps, min_size=2, max_size=5), closed=st.lists(which, max_size=3))
    def work(self, opened: list[Opening], steps: list[Step], closed: list[int]) -> None:
        """One rule for everything: Hypothesis leaves whole rules out of many runs."""
        self._open(opened)
        for step in steps:
            self._step(step)
            self._check()
        for number in closed[: len(self.tables)]:
            self._close(list(self.tables)[number % len(self.tables)])
            self._check()

    def _open(self, opened: list[Opening]) -> None:
        for length, tail, salt, skip in opened:
            name, tokens = f"r{self.opened}", TOKENS[:length] + tail
            self.opened += 1
            self.tables[name] = self.kv.open(name, tokens, salt=salt, skip_lookup=skip)
            self.plain.tables[name] = PlainTable(list(tokens), salt, skip)
            self.pending[name] = 0

    def _step(self, drawn: Step) -> None:
        """Move, then plan and launch a step, then commit all plans, or all but this one."""
        for block, to in drawn.moved:
            self._move(block, to)
        step = self.kv.begin_step()
        for number, most in drawn.grown:
            self._grow(number, most)
        preempted = [self._preempt(number) for number in drawn.victims]
        for number, most in drawn.admitted if not any(preempted) else ():
            self._admit(number, most)
        if self.planned:
            self.kv.launch(list(self.planned), tuple(end - start for start, end, _ in self.planned.values()))
            self.plain.launch(step, {name: (start, end) for name, (start, end, _) in self.planned.items()})
            self.launched[step] = self.planned
            for name, (_, _, samples) in self.planned.items():
                self.pending[name] += samples
        self.planned = {}
        while len(self.launched) > drawn.ahead:
            self._commit(min(self.launched), drawn.token, drawn.endings)

    def _move(self, number: int, free: int) -> None:
        held = [block for block, owners in self.plain.owners.items() if owners]
        if not held or not self.plain.order:
            return
        block, to = held[number % len(held)], self.plain.order[free % len(self.plain.order)]
        writing = {name: what for name in self.tables if (what := self.writing(name))}
        if self.plain.has_deeper(to):
            before = self.kv.snapshot()
            with pytest.raises(MoveRefused, match=f"block {to} is cached and block"):
                self.kv.move(block, to, writing)
            assert self.kv.snapshot() == before
            return
        self.kv.move(block, to, writing)
        self.plain.move(block, to)
        self._check()

    def _grow(self, number: int, most: int) -> None:
        name = self.pick(number, RequestStatus.RUNNING)
        if name is None:
            return
        table, plain = self.tables[name], self.plain.tables[name]
        horizon = len(table.tokens) + self.pending[name]
        start, end = table.slots, min(table.slots + most, horizon)
        if start == end:
            return
        taken = self.kv.extend(table, end)
        if self.plain.needed(plain, end) > len(self.plain.order):
            assert taken is None
            return
        assert taken == tuple(self.plain.grow(plain, end))
        self.planned[name] = (start, end, end == horizon)

    def _preempt(self, number: int) -> bool:
        running = [name for name, table in self.tables.items() if table.status is RequestStatus.RUNNING]
        if not running:
            return False
        name = running[number % len(running)]
        self.kv.preempt(self.tables[name], self.tables[running[0]], self.writing(name))
        self.plain.preempt(name)
        self.planned.pop(name, None)
        return True

    def _admit(self, number: int, most: int) -> None:
        name = self.pick(number, RequestStatus.WAITING, RequestStatus.PREEMPTED)
        if name is None:
            return
        table, plain = self.tables[name], self.plain.tables[name]
        hit, expected = self.kv.match(table), self.plain.match(plain)
        assert [block.id for block in hit.blocks] == expected
        assert hit.revived == sum(not self.plain.owners[block] for block in expected)
        needed = -(-len(table.tokens) // self.kv.block_size) - len(expected) + hit.revived
        fits = self.kv.fits(hit, len(table.tokens), 0)
        assert fits == (needed <= len(self.plain.order))
        if not fits:
            return
        end = min(hit.tokens + most, len(table.tokens))
        ids = self.kv.admit(table, hit, end)
        self.plain.share(plain, expected)
        self.plain.grow(plain, end)
        assert list(ids) == plain.blocks
        self.planned[name] = (hit.tokens, end, end == len(table.tokens))

    def _commit(self, step: int, token: int, endings: set[int]) -> None:
        rows = self.launched.pop(step)
        sampled = [name for name, (_, _, samples) in rows.items() if samples and name in self.tables]
        self.kv.commit(step, sampled)
        self.plain.commit(step)
        for row, name in enumerate(sampled):
            table, plain = self.tables[name], self.plain.tables[name]
            table.tokens.append(token)
            plain.tokens.append(token)
            self.pending[name] -= 1
            if row in endings:
                self._close(name)
                continue
            if table.slots >= table.publish_at:
                self.kv.publish(table)
            self.plain.publish(plain)
            plain.fresh = []

    def _close(self, name: str) -> None:
        self.kv.close(self.tables.pop(name), "length", self.writing(name))
        self.plain.close(name)

    # -- what must hold ----------------------------------------------------------------------------

    def _check(self) -> None:
        snapshot, plain = self.kv.snapshot(), self.plain
        assert list(snapshot.pool.reuse_order) == plain.order
        assert list(snapshot.pool.owners) == list(plain.owners.values())
        assert {name: list(table.blocks) for name, table in plain.tables.items()} == {
            request.name: list(request.blocks) for request in snapshot.requests
        }
        assert {block: step for block, step in enumerate(snapshot.pool.fences) if step} == plain.fences()
        for rows in plain.writing.values():
            assert not set(snapshot.pool.reuse_order) & set().union(*rows.values())
        self._the_same_contents()
        account(self.kv)
        self.auditor.require()

    def _the_same_contents(self) -> None:
        identities = {block.id: block.content.identity for block in self.kv.pool.blocks if block.content}
        assert identities.keys() == self.plain.found.keys()
        pairs = {(identity, self.plain.found[block]) for block, identity in identities.items()}
        assert len(pairs) == len({identity for identity, _ in pairs}) == len({prefix for _, prefix in pairs})

    def teardown(self) -> None:
        if not hasattr(self, "kv"):
            return
        for step in sorted(self.launched):
            self._commit(step, 1, set())
        for name in list(self.tables):
            self._close(name)
        assert self.kv.snapshot().pool.reclaimable == self.kv.pool.usable


TestManager = ManagerMachine.TestCase
TestManager.settings = examples(80, steps=8)
