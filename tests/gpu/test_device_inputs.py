"""The inputs that a kernel makes on the device against those of the plain runner, and what padding looks like."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from pellucid.plan import Admission, SamplingParams, StepPlan
from pellucid.runtime.buckets import Buckets
from pellucid.runtime.controls import Controls
from pellucid.runtime.device_tables import NOTHING_APPENDED, DeviceTables
from pellucid.runtime.inputs import StepInputs, step_inputs
from pellucid.runtime.lines import Lines, Ranges
from pellucid.runtime.rows import Rows
from pellucid.runtime.sampler import Draw
from pellucid.runtime.step_buffer import StepBuffer, signed
from pellucid.runtime.tables import Tables
from pellucid.runtime.triton_inputs import DeviceInputs

BLOCK, NUM_BLOCKS, LONGEST = 4, 2000, 1600


class Both:
    """Rows and tables twice, as the two runners keep them; no model."""

    def __init__(self, device: torch.device, max_num_seqs: int, max_num_batched_tokens: int) -> None:
        self.rows, self.tables = Rows(), Tables(NUM_BLOCKS, device)
        self.buckets = Buckets(max_num_seqs, max_num_batched_tokens)
        self.lines = Lines(max_num_seqs)
        self.device_tables = DeviceTables(max_num_seqs, LONGEST, BLOCK, NUM_BLOCKS, device)
        self.buffer = StepBuffer(max_num_seqs, 600, device)
        self.results = torch.full((2, max_num_seqs), -7, dtype=torch.int64, device=device)
        self.controls = Controls(max_num_seqs, 2, device)
        self.device_inputs = DeviceInputs(self.buffer, self.device_tables, self.buckets, self.controls, self.results)

    def inputs(self, plan: StepPlan, first: int = 0, by: int = 0) -> tuple[StepInputs, StepInputs]:
        """Of the plain runner, and of the other, whose rows then sample tokens ``first``, ``first + by``, and so on."""
        self.rows.apply(plan)
        self.tables.apply(plan, self.rows)
        ranges = zip(plan.handles, plan.starts, plan.counts, plan.samples, strict=True)
        plain = step_inputs(plan, [self.rows.advance(*row) for row in ranges], self.tables, BLOCK)
        if plan.admitted:
            self.device_tables.admit(plan.admitted, self.lines.apply(plan))
        appended = self.device_tables.append(plan, self.lines)
        advanced = self.lines.advance(plan)
        bucket = self.buckets.holding(sum(plan.counts), len(plan.handles))
        self.buffer.describe(advanced, bucket, appended)
        inputs = self.device_inputs.fill(bucket)
        self.device_inputs.keep(first + by * torch.arange(bucket.rows, device=self.buffer.packed.device))
        self.buffer.launched()
        return plain, inputs


def admission_plan(lengths: list[int], counts: list[int]) -> StepPlan:
    """Requests of so many tokens, numbered from 1, of which a first chunk is computed; blocks for all tokens."""
    handles = tuple(range(1, len(lengths) + 1))
    admitted, blocks, free = [], [], iter(range(1, NUM_BLOCKS))
    for handle, length in zip(handles, lengths, strict=True):
        admitted.append(Admission(handle, f"R{handle}", tuple(range(length)), length, SamplingParams()))
        blocks.append((handle, tuple(next(free) for _ in range(-(-length // BLOCK)))))
    samples = tuple(length == count for length, count in zip(lengths, counts, strict=True))
    starts = (0,) * len(lengths)
    return StepPlan(1, (), tuple(admitted), tuple(blocks), (), handles, starts, tuple(counts), samples)


def assert_agree(plain: StepInputs, device: StepInputs) -> None:
    """They agree on what is real, and the rest is padding as `StepLayout` wants it."""
    tokens, rows = len(plain.token_ids), len(plain.layout.context_lens)
    assert torch.equal(device.token_ids[:tokens], plain.token_ids)
    assert torch.equal(device.positions[:tokens], plain.positions)
    layout, theirs = device.layout, plain.layout
    assert torch.equal(layout.slots[:tokens], theirs.slots)
    assert torch.equal(layout.query_start[: rows + 1], theirs.query_start)
    assert torch.equal(layout.context_lens[:rows], theirs.context_lens)
    for row, context in enumerate(theirs.context_lens.tolist()):
        blocks = -(-context // BLOCK)
        assert torch.equal(layout.block_tables[row, :blocks], theirs.block_tables[row, :blocks])
    assert layout.max_query >= theirs.max_query
    assert (layout.slots[tokens:] < BLOCK).all()
    assert (layout.context_lens[rows:] == 0).all()
    assert (device.token_ids[tokens:] == 0).all()
    assert len(layout.query_start) == len(layout.context_lens) + 1 == len(layout.block_tables) + 1


def test_mixed_steps_of_rows_longer_than_a_tile(device: torch.device) -> None:
    both = Both(device, 8, 1024)
    plain, mine = both.inputs(admission_plan([700, 3, 1500, 1], [300, 3, 513, 1]))
    assert_agree(plain, mine)
    assert len(mine.token_ids) == 896
    assert (mine.layout.query_start[4:] == 817).all()
    assert mine.sampled[[1, 3]].tolist() == plain.sampled.tolist()
    plan = StepPlan(2, (), (), (), (), (3, 1, 2, 4), (513, 300, 3, 1), (2, 400, 1, 1), (False, True, True, True))
    both.rows[2].known, both.rows[4].known = 4, 2
    both.lines.known[[both.lines[2], both.lines[4]]] = 4, 2
    assert_agree(*both.inputs(plan))


@pytest.mark.parametrize("rows", [1, 3, 8, 11])
def test_decode_steps(device: torch.device, rows: int) -> None:
    """One token a row, padding rows included; only the appended blocks change from one to the next."""
    both = Both(device, 12, 256)
    lengths = [5 + 3 * i for i in range(rows)]
    both.inputs(admission_plan(lengths, [length - 2 for length in lengths]))
    handles, ones = tuple(range(1, rows + 1)), (1,) * rows
    for step, left in ((2, 2), (3, 1)):
        starts = tuple(length - left for length in lengths)
        blocks = tuple((handle, (900 * (step - 1) + handle,)) for handle in handles[::2])
        samples = (left == 1,) * rows
        plain, mine = both.inputs(StepPlan(step, (), (), blocks, (), handles, starts, ones, samples))
        assert_agree(plain, mine)
        assert mine.layout.max_query == 1
        assert mine.layout.query_start.tolist() == list(range(len(mine.token_ids) + 1))


def test_a_step_that_nobody_described_is_padding(device: torch.device) -> None:
    both = Both(device, 4, 64)
    both.inputs(admission_plan([9, 3], [9, 3]))
    before = both.results.clone(), both.device_tables.tokens.clone()
    for bucket in both.buckets.largest_first:
        inputs = both.device_inputs.fill(bucket)
        assert (inputs.layout.slots < BLOCK).all()
        assert (inputs.layout.context_lens == 0).all()
        assert (both.buffer.device.sampling == -1).all()
        both.device_inputs.keep(torch.full((bucket.rows,), 55, device=device))
    assert torch.equal(both.results, before[0])
    assert torch.equal(both.device_tables.tokens, before[1])
    assert both.buffer.done.item() == 1


def test_tokens_of_rows_that_sample_go_to_the_tables_and_to_the_results_of_their_turn(device: torch.device) -> None:
    both = Both(device, 8, 256)
    plan = admission_plan([9, 5, 7], [9, 3, 7])  # the second has more of its prompt to compute
    both.inputs(plan, 100, 1)
    assert both.results.tolist() == [[100, -7, 102, *[-7] * 5], [-7] * 8]
    lines = [both.lines[handle] for handle in plan.handles]
    tokens = both.device_tables.tokens
    assert [tokens[line, end].item() for line, end in zip(lines, (9, 3, 7), strict=True)] == [100, 3, 102]


def test_scores_are_wanted_of_rows_that_sample_and_do_not_simply_take_the_best(device: torch.device) -> None:
    both = Both(device, 8, 256)
    kinds = [{"temperature": 0}, {}, {"temperature": 0, "min_tokens": 2}, {"temperature": 0, "min_tokens": 2}, {}]
    plan = admission_plan([4, 5, 6, 7, 8], [4, 5, 6, 7, 3])  # the last has more of its prompt to compute
    lengths = [4, 5, 6, 5, 8]  # the fourth has two outputs
    both.rows.apply(plan)
    for handle, line in zip(plan.handles, both.lines.apply(plan), strict=True):
        sampling = SamplingParams(**kinds[handle - 1])
        drawn = Draw(sampling, 1, lengths[handle - 1], 0)
        both.controls.put([line], [both.controls.record(drawn, (1,))])
    ranges = both.lines.advance(plan)
    bucket = both.buckets.holding(sum(plan.counts), len(plan.handles))
    both.buffer.describe(ranges, bucket, NOTHING_APPENDED)
    both.device_inputs.fill(bucket)
    assert both.device_inputs.wanted(bucket.rows).tolist() == [0, 1, 1, 0, 0] + [0] * (bucket.rows - 5)


def test_results_of_more_rows_than_a_tile(device: torch.device) -> None:
    both = Both(device, 300, 1024)
    both.inputs(admission_plan([2] * 300, [2] * 300), 100, 1)
    assert both.results[0].tolist() == list(range(100, 400))


def described(both: Both, ends: int) -> None:
    """A step of one row on line 2, told from others by ``ends``."""
    ranges = Ranges(np.array([2]), *np.array([[1], [ends]], np.int32), np.array([True]))
    both.buffer.describe(ranges, both.buckets.holding(1, 1), NOTHING_APPENDED)


@pytest.mark.parametrize("before", [0, 5, 2**31 - 2, 2**31 - 1, 2**32 - 1])
def test_steps_run_in_the_order_in_which_they_were_described(device: torch.device, before: int) -> None:
    """Two are described before the first one runs; and one that never ran is forgotten, as the next takes its place.
    Serials begin anew after 2^32."""
    both = Both(device, 4, 64)
    both.buffer._launched = before
    both.buffer.done.fill_(signed(before))
    both.buffer.hosts[:, 0] = signed(before)
    bucket = both.buckets.holding(1, 1)

    def next_step() -> int:
        ends = both.device_inputs.fill(bucket).layout.context_lens[0].item()
        both.device_inputs.keep(torch.tensor([ends], device=device).expand(bucket.rows))
        return ends

    described(both, 10)
    both.buffer.launched()
    described(both, 11)
    both.buffer.launched()
    assert [next_step(), next_step(), next_step()] == [10, 11, 0]
    described(both, 12)  # which nobody launches
    described(both, 13)
    both.buffer.launched()
    described(both, 14)
    assert [next_step(), next_step(), next_step()] == [13, 14, 0]
    assert both.results[:, 0].sort().values.tolist() == [13, 14]
