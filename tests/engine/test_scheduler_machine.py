"""The scheduler under random traffic: every pool so small that sharing, eviction and pre-emption really happen.

After everything that happens the `Bench` counts the blocks, folds the journal, reads the KV of every row back and
asks the engine's own checkers. At the end everything must drain, with each output exactly once.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any, NamedTuple

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from model_free import Bench, examples
from pellucid.engine.sequence import Sequence
from pellucid.errors import DuplicateRequest, FinishedRequest, MoveRefused, RequestError, UnknownRequest
from pellucid.kv import REUSE_POLICIES, acts
from pellucid.plan import StepPlan
from plain_ledger import PlainLedger

MAX_MODEL_LEN = 20
EOS = 7
STOP = 8
FAMILIES = ([1, 2, 3, 4] * 5, [1, 2, 3, 4, 9, 9, 9, 9, 1, 2, 3, 4, 9, 9, 9, 9], [5] * 20)


class Draw(NamedTuple):
    """One request as drawn."""

    prompt: list[int]
    output: list[int]
    max_tokens: int | None
    space: tuple[str | None, tuple[str, str] | None]
    priority: int
    sampling: dict[str, Any]


def often(common: Any, *rare: Any) -> st.SearchStrategy[Any]:
    return st.sampled_from([common] * 4 + list(rare))


prompts = st.builds(
    lambda family, shared, tail: FAMILIES[family][:shared] + tail,
    often(0, 1, 1, 2),
    st.integers(1, 13),
    st.lists(st.integers(1, 4), max_size=2),
)
draws = st.builds(
    Draw,
    prompts,
    st.lists(st.sampled_from([1, 2, 3, 4, 9]), max_size=6).flatmap(
        lambda tokens: st.sampled_from([tokens, [*tokens, EOS], [*tokens, STOP]])
    ),
    st.sampled_from([12, 9, 7, 4, 2, 1, None]),
    often((None, None), ("s", None), (None, ("a", "1")), (None, ("a", "2"))),
    st.integers(0, 2),
    st.fixed_dictionaries(
        {
            "skip_reading_prefix_cache": often(False, True),
            "min_tokens": often(0, 1),
            "stop_token_ids": st.sampled_from([(), (STOP,)]),
            "ignore_eos": st.booleans(),
        }
    ),
)
engines = st.fixed_dictionaries(
    {
        "reuse_policy": st.sampled_from(sorted(REUSE_POLICIES)),
        "enable_prefix_caching": often(True, False),
        "scheduling_policy": st.sampled_from(["fcfs", "priority"]),
        "max_num_batched_tokens": st.sampled_from([8, 6, 5, 4, 3, 2, 1]),
        "max_num_seqs": often(4, 3, 2, 1),
        "watermark": often(0.0, 0.2, 0.5),
    }
)


class SchedulerMachine(RuleBasedStateMachine):
    """Add, abort and step in any order; ``loose`` launches and collects apart, one plan ahead or not."""

    def __init__(self) -> None:
        super().__init__()
        self.live: dict[str, Sequence] = {}
        self.done: dict[str, Sequence] = {}
        self.added = 0
        self.seen_acts = 0

    @initialize(
        block_size=st.sampled_from([1, 2, 4]),
        slots=st.sampled_from([24, 20, 32, 16, 36, 12]),
        drive=st.sampled_from(["sync", "async", "loose"]),
        options=engines,
        first=st.lists(draws, min_size=3, max_size=5),
    )
    def build(self, block_size: int, slots: int, drive: str, options: dict[str, Any], first: list[Draw]) -> None:
        self.loose = drive == "loose"
        self.bench = Bench(
            num_blocks=slots // block_size + 1,
            block_size=block_size,
            asynchronous=drive != "sync",
            max_model_len=MAX_MODEL_LEN,
            eos_token_ids=(EOS,),
            **options,
        )
        self.ledger = PlainLedger(block_size)
        for draw in first:
            self._add(f"r{self.added}", draw)

    @rule(
        drawn=st.lists(draws, min_size=1, max_size=3),
        again=st.booleans(),
        halves=st.lists(st.booleans(), min_size=3, max_size=8),
        aborted=often([], [0], [1], [0, 0], [1, 0], [2, 1, 0]),
        moved=often([], [(0, 0)], [(1, 50), (0, 99)], [(4, 99), (4, 99), (2, 0)]),
    )
    def work(
        self, drawn: list[Draw], again: bool, halves: list[bool], aborted: list[int], moved: list[tuple[int, int]]
    ) -> None:
        """One rule for everything: Hypothesis leaves whole rules out of many runs."""
        for draw in drawn:
            self._add(next(reversed(self.done)) if again and self.done else f"r{self.added}", draw)
        for launches in halves:
            self._half_step(launches) if self.loose else self._step()
            for block, to in moved:
                self._move(block, to)
        for number in aborted[: len(self.live)]:
            self._abort(list(self.live)[number % len(self.live)])

    def _add(self, name: str, draw: Draw) -> None:
        kv, room = self.bench.kv, MAX_MODEL_LEN - len(draw.prompt)
        new = room if draw.max_tokens is None else min(draw.max_tokens, room)
        possible = room > 0 and len(draw.prompt) + new - 1 <= kv.pool.usable * kv.block_size
        min_tokens = min(draw.sampling["min_tokens"], draw.max_tokens or MAX_MODEL_LEN)
        sampling = {**draw.sampling, "min_tokens": min_tokens}
        salt, adapter = draw.space
        options = dict(output=draw.output, salt=salt, adapter=adapter, priority=draw.priority, **sampling)
        before = self.bench.snapshot
        if not possible:
            with pytest.raises(RequestError):
                self.bench.add(name, draw.prompt, draw.max_tokens, **options)
            assert self.bench.snapshot == before
            return
        self.live[name] = self.bench.add(name, draw.prompt, draw.max_tokens, **options)
        self.done.pop(name, None)
        self.added += 1

    def _abort(self, name: str) -> None:
        with pytest.raises(DuplicateRequest):
            self.bench.add(name, [1], 1)
        last = self.bench.table(name)
        assert self.bench.abort(name) is self.live[name]
        assert self.live[name].finish_reason == "abort"
        self._finish(name)
        with pytest.raises(FinishedRequest) as caught:
            self.bench.abort(name)
        assert caught.value.table == last
        with pytest.raises(UnknownRequest, match="nobody"):
            self.bench.abort("nobody")

    def _move(self, number: int, free: int) -> None:
        pool = self.bench.snapshot.pool
        held = [block for block, owners in enumerate(pool.owners) if owners]
        if held and pool.reuse_order:
            with suppress(MoveRefused):  # what is there may have a deeper block that is findable
                self.bench.move(held[number % len(held)], pool.reuse_order[free % len(pool.reuse_order)])

    def _step(self) -> None:
        before = len(self.bench.memory.plans)
        waiting, running = self._queues()
        self.bench.step()
        self._settle(waiting, running, self.bench.memory.plans[before:])

    def _half_step(self, launches: bool) -> None:
        waiting, running = self._queues()
        if launches and len(self.bench.scheduler.launched) < 2:
            self._settle(waiting, running, [self.bench.launch()])
        elif self.bench.scheduler.launched:
            self.bench.collect()
            self._settle([], set(), [])

    def _queues(self) -> tuple[list[str], set[str]]:
        scheduler = self.bench.scheduler
        return [s.name for s in scheduler.waiting], {s.name for s in scheduler.running}

    def _settle(self, waiting: list[str], running: set[str], plans: list[StepPlan]) -> None:
        """What one step may do: stay within its budget, admit from the head, never admit and pre-empt at once."""
        config = self.bench.scheduler.config
        step_acts = list(self.bench.kv.journal.since(self.seen_acts))
        self.seen_acts = len(self.bench.kv.journal)
        admitted = [act.request for act in step_acts if isinstance(act, acts.Admit)]
        preempted = [act for act in step_acts if isinstance(act, acts.Preempt)]
        assert admitted == waiting[: len(admitted)]
        assert not (admitted and preempted)
        assert {act.request for act in preempted} | {act.by for act in preempted} <= running
        for plan in plans:
            assert sum(plan.counts) <= config.max_num_batched_tokens
            assert len(plan.handles) == len(set(plan.handles)) <= config.max_num_seqs
        assert len(self.bench.scheduler.running) <= config.max_num_seqs
        for act in step_acts:
            self.ledger.follow(act, self.live.get(getattr(act, "request", "")))
        for name, sequence in list(self.live.items()):
            assert sequence.table.slots < sequence.limit
            if sequence.finish_reason is not None:
                self._finish(name)

    def _finish(self, name: str) -> None:
        """A request has ended: its output is the expected one or, aborted, the beginning of it."""
        sequence = self.done[name] = self.live.pop(name)
        output, expected = self.bench.outputs[sequence.handle], self.bench.expected[sequence.handle]
        assert sequence.output == output
        if sequence.finish_reason == "abort":
            assert output == expected[: len(output)]
            return
        assert output == expected
        sampling = sequence.request.sampling
        stops = () if len(output) < sampling.min_tokens else sampling.stop_token_ids
        ends = stops if sampling.ignore_eos or len(output) < sampling.min_tokens else (*stops, EOS)
        assert sequence.finish_reason == ("stop" if output[-1] in ends else "length")
        assert sequence.stop_reason == (output[-1] if output[-1] in stops else None)

    def teardown(self) -> None:
        if not hasattr(self, "bench"):
            return
        while self.bench.scheduler.launched:
            self.bench.collect()
            self._settle([], set(), [])
        self.bench.drain()
        for name in list(self.live):
            self._finish(name)


TestScheduler = SchedulerMachine.TestCase
TestScheduler.settings = examples(100, steps=8)
