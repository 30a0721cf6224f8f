"""Every invariant is broken on purpose, and its checker is seen to fire and to name the block.

A fault is planted in a healthy engine in mid-run; the auditor must have been silent before and must
name the invariant after. The faults of the past (I4, I5, I8, I10) are planted in the acts.
"""

from __future__ import annotations

import pytest

from pellucid.engine.config import SchedulerConfig
from pellucid.engine.core import EngineCore
from pellucid.engine.scheduler import Scheduler
from pellucid.errors import InvariantViolation
from pellucid.kv import KVManager, acts, first_difference
from pellucid.kv.block import Content
from pellucid.kv.invariants import INVARIANTS, Auditor
from pellucid.kv.memory import PoolMemory
from pellucid.plan import Request, SamplingParams
from pellucid.runtime.forced import ForcedRunner

B = 4
PROMPT = tuple(range(1, 11))  # two full blocks and half of one


def count_up(name: str, index: int) -> int:
    return 100 + index


class Bench:
    """Two requests that share their prompt's blocks, a finished third that left cached blocks."""

    def __init__(self, *, asynchronous: bool = False) -> None:
        self.kv = KVManager(20, B, journal_capacity=None)
        self.scheduler = Scheduler(self.kv, SchedulerConfig(max_model_len=60))
        self.core = EngineCore(self.scheduler, ForcedRunner(count_up), asynchronous=asynchronous)
        self.memory = PoolMemory(4096, 1 << 20)
        self.auditor = Auditor(self.kv, lambda: self.memory)
        self.add("gone", (50, 51, 52, 53, 54), max_tokens=1)
        self.core.step()
        self.core.drain()
        self.add("a", PROMPT)
        self.add("b", (*PROMPT, 99))
        self.core.step()
        assert self.auditor.check() == []

    def add(self, name: str, prompt: tuple[int, ...], max_tokens: int = 30, salt: str | None = None) -> None:
        sampling = SamplingParams(temperature=0, max_tokens=max_tokens)
        self.scheduler.add(Request(name=name, prompt=prompt, sampling=sampling, salt=salt))

    def broken(self) -> set[str]:
        found = self.auditor.check()
        for violation in found:
            assert str(violation).startswith(violation.invariant)
            assert violation.message.endswith(".")
        return {violation.invariant for violation in found}

    def blocks_named(self, invariant: str) -> set[int]:
        return {b for violation in self.auditor.check() if violation.invariant == invariant for b in violation.blocks}


def test_a_healthy_run_breaks_nothing_in_either_mode() -> None:
    for asynchronous in (False, True):
        bench = Bench(asynchronous=asynchronous)
        while bench.core.has_unfinished_requests():
            bench.core.step()
            assert bench.auditor.check() == []


def test_i1_a_held_block_in_the_order_of_reuse() -> None:
    bench = Bench()
    held = bench.kv.pool.blocks[bench.kv.table("a")[0]]
    bench.kv.pool.reclaimable.put([held])
    assert held.id in bench.blocks_named("I1")


def test_i1_a_free_block_that_is_nowhere() -> None:
    bench = Bench()
    lost = next(iter(bench.kv.pool.reclaimable))
    bench.kv.pool.reclaimable.remove(lost)
    assert bench.blocks_named("I1") == {lost.id}


def test_i1_an_owner_of_the_reserved_block_and_a_fence_that_nobody_will_lift() -> None:
    bench = Bench()
    bench.kv.pool.blocks[0].owners = 1
    held = bench.kv.table("a")[0]
    bench.kv.pool.blocks[held].fence = 99  # no such step is under way
    assert {0, held} <= bench.blocks_named("I1")


@pytest.mark.parametrize("change", [+1, -1])
def test_i2_a_miscounted_owner(change: int) -> None:
    bench = Bench()
    shared = bench.kv.table("a")[0]
    assert bench.kv.snapshot().pool.owners[shared] == 2
    bench.kv.pool.blocks[shared].owners += change
    assert bench.blocks_named("I2") == {shared}


def test_i2_a_block_twice_in_one_table() -> None:
    bench = Bench()
    table = bench.kv.live_tables()[0]
    table.blocks[-1] = table.blocks[0]
    assert table.blocks[0].id in bench.blocks_named("I2")


@pytest.mark.parametrize("slots", [+B, -B])
def test_i3_a_table_longer_or_shorter_than_its_slots(slots: int) -> None:
    bench = Bench()
    bench.kv.live_tables()[0].slots += slots
    assert "I3" in bench.broken()


def test_i4_a_full_shared_block_is_written_again() -> None:
    bench = Bench()
    bench.kv.journal.append(acts.Launch(bench.kv.step + 1, ("a",), (1,)))
    bench.auditor.check()
    again = acts.Admit(bench.kv.step + 1, "a", 0)  # as if it started over without giving its blocks back
    bench.kv.journal.append(again)
    bench.kv.journal.append(acts.Launch(bench.kv.step + 2, ("a",), (2,)))
    assert set(bench.kv.table("a")[:1]) <= bench.blocks_named("I4")


def test_i4_a_block_is_written_while_another_request_has_it_too() -> None:
    bench = Bench()
    mine = bench.kv.table("a")[-1]  # half full
    bench.kv.journal.append(acts.Open(bench.kv.step, "thief", 9, b""))
    bench.kv.journal.append(acts.Share(bench.kv.step, "thief", (mine,), ()))
    bench.kv.journal.append(acts.Launch(bench.kv.step + 1, ("a",), (1,)))
    assert mine in bench.blocks_named("I4")


def test_i5_a_block_is_findable_before_any_plan_fills_it() -> None:
    bench = Bench()
    table = bench.kv.live_tables()[0]
    half = table.blocks[-1].id
    bench.kv.journal.append(acts.Publish(bench.kv.step, "a", (half,), (b"x" * 32,)))
    assert half in bench.blocks_named("I5")


def test_i5_the_plan_that_should_fill_a_findable_block_leaves_it_out() -> None:
    bench = Bench()
    half = bench.kv.table("a")[-1]
    step = bench.kv.step + 1
    bench.kv.journal.append(acts.Publish(step, "a", (half,), (b"x" * 32,)))
    bench.kv.journal.append(acts.Launch(step, ("b",), (1,)))
    assert half in bench.blocks_named("I5")


def test_i6_a_hash_that_is_not_its_contents() -> None:
    bench = Bench()
    block = bench.kv.pool.blocks[bench.kv.table("a")[0]]
    content = block.content
    assert content is not None
    block.content = Content(content.identity, content.parent, (7, 7, 7, 7), content.namespace, content.plain)
    assert block.id in bench.blocks_named("I6")


def test_i6_a_stale_entry_of_the_index() -> None:
    bench = Bench()
    cached = next(block for block in bench.kv.pool.blocks if block.content is not None and not block.owners)
    cached.content = None
    assert cached.id in bench.blocks_named("I6")


def test_i6_a_request_whose_block_holds_other_tokens() -> None:
    bench = Bench()
    table = bench.kv.live_tables()[0]
    table.tokens[1] = 77
    assert table.blocks[0].id in bench.blocks_named("I6")


def test_i7_a_findable_block_without_its_parent() -> None:
    bench = Bench()
    first, second = (bench.kv.pool.blocks[i] for i in bench.kv.table("a")[:2])
    bench.kv.pool.unpublish([first])
    assert second.id in bench.blocks_named("I7")


def test_i7_a_hit_on_what_is_not_findable() -> None:
    bench = Bench()
    half = bench.kv.table("a")[-1]
    bench.kv.journal.append(acts.Open(bench.kv.step, "c", 9, b""))
    bench.kv.journal.append(acts.Share(bench.kv.step, "c", (half,), ()))
    assert half in bench.blocks_named("I7")


def test_i8_a_request_with_nothing_left_to_compute() -> None:
    bench = Bench()
    bench.kv.journal.append(acts.Open(bench.kv.step, "c", 8, b""))
    bench.kv.journal.append(acts.Lookup(bench.kv.step, "c", acts.LookupKind.FIRST, 8, 8, ()))
    bench.kv.journal.append(acts.Share(bench.kv.step, "c", bench.kv.table("a")[:2], ()))
    bench.kv.journal.append(acts.Admit(bench.kv.step, "c", 8))
    assert "I8" in bench.broken()


@pytest.mark.parametrize("counter", ["taken", "returned"])
def test_i9_a_miscounted_pool(counter: str) -> None:
    bench = Bench()
    setattr(bench.kv.pool, counter, getattr(bench.kv.pool, counter) + 1)
    assert "I9" in bench.broken()


def test_i10_a_block_is_taken_while_a_launched_step_may_write_to_it() -> None:
    bench = Bench(asynchronous=True)
    assert bench.scheduler.launched
    bench.scheduler.abort("a")
    assert bench.auditor.check() == []
    (fenced,) = (block for block in bench.kv.pool.blocks if block.fence and not block.owners)
    step = bench.kv.step
    bench.kv.journal.append(acts.Unfence(step, (fenced.id,)))
    assert fenced.id in bench.blocks_named("I10")
    bench.kv.journal.append(acts.Take(step, "b", (fenced.id,)))
    assert fenced.id in bench.blocks_named("I10")


def test_i10_without_fences_the_engine_itself_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench(asynchronous=True)
    monkeypatch.setattr(Scheduler, "_writing", lambda self, sequence: None)
    bench.scheduler.abort("a")
    bench.add("c", tuple(range(200, 258)))
    bench.core.step()
    assert "I10" in bench.broken()


def test_i11_a_pool_that_moved_or_grew() -> None:
    for memory in (PoolMemory(8192, 1 << 20), PoolMemory(4096, 1 << 21)):
        bench = Bench()
        bench.memory = memory
        assert bench.broken() == {"I11"}


@pytest.mark.parametrize(
    "forget", [acts.Take, acts.Share, acts.Publish, acts.Launch, acts.Commit, acts.Return, acts.Close, acts.Lookup]
)
def test_i12_an_act_that_was_not_recorded(forget: type) -> None:
    bench = Bench()
    keep = bench.kv.journal.append
    bench.kv.journal.append = lambda act: None if isinstance(act, forget) else keep(act)
    bench.add("c", PROMPT, max_tokens=1)
    bench.core.step()
    assert "I12" in bench.broken()


def test_i12_reports_the_field_that_differs() -> None:
    bench = Bench()
    bench.kv.ledger.evictions += 1
    (violation,) = bench.auditor.check()
    assert violation.invariant == "I12"
    assert "evictions folds to 0 and is 1" in violation.message


def test_i13_two_runs_that_part() -> None:
    same, other, longer = Bench(), Bench(), Bench()
    assert first_difference(same.kv.journal, Bench().kv.journal) is None
    other.add("c", (1, 2, 3))
    other.core.step()
    same.core.step()
    longer.core.step()
    longer.core.step()
    assert "differs" in (first_difference(same.kv.journal, other.kv.journal) or "")
    assert "ends after" in (first_difference(same.kv.journal, longer.kv.journal) or "")
    assert "pools differ" in (first_difference(same.kv.journal, KVManager(21, B).journal) or "")


def test_i14_a_request_that_shares_across_salts(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench()
    table = bench.kv.live_tables()[0]
    table.space = b"another tenant"
    assert set(bench.kv.table("a")[:2]) <= bench.blocks_named("I14")


def test_i14_a_salt_that_is_left_out_of_the_hash_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    import pellucid.kv.table as table_module
    from pellucid.kv.identity import identity

    monkeypatch.setattr(table_module, "identity", lambda parent, tokens, space: identity(parent, tokens, b""))
    bench = Bench()
    bench.add("salted", PROMPT, salt="secret")
    bench.core.step()
    assert "I14" in bench.broken()


def test_require_raises_the_first_violation() -> None:
    bench = Bench()
    bench.auditor.require()
    bench.kv.pool.taken += 1
    with pytest.raises(InvariantViolation, match=r"I9 .*taken"):
        bench.auditor.require()


def test_every_invariant_has_a_fault_here() -> None:
    import sys

    names = [name for name in vars(sys.modules[__name__]) if name.startswith("test_i")]
    for invariant in INVARIANTS:
        assert any(name.startswith(f"test_{invariant.lower()}_") for name in names), invariant
