"""The two ends of a step on the device: its inputs from buffer and tables, and its tokens back into the tables."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from pellucid.attention import StepLayout
from pellucid.runtime.buckets import Bucket, Buckets
from pellucid.runtime.controls import Controls
from pellucid.runtime.device_tables import DeviceTables
from pellucid.runtime.inputs import StepInputs
from pellucid.runtime.step_buffer import PADDING, StepBuffer
from pellucid.runtime.triton_sampler import takes_best
from pellucid.triton_launch import announce, await_input, chained

TILE = 256
"""Tokens, blocks or rows that a program takes at once."""
RECEIVED = 1024
"""Numbers of the host that a program takes."""


class DeviceInputs:
    """The inputs of a step at fixed addresses, filled on the device; every bucket uses the front of the same memory.

    ``results`` [turns, R] int64 is memory that the device can write to, for the tokens that steps sample.
    """

    def __init__(
        self, buffer: StepBuffer, tables: DeviceTables, buckets: Buckets, controls: Controls, results: torch.Tensor
    ) -> None:
        self._buffer, self._tables, self._controls, self._results = buffer, tables, controls, results
        max_tokens, max_rows = buckets.max_tokens, buckets.max_rows
        device = tables.tokens.device
        self._token_ids, self._positions, self._slots = torch.zeros(3, max_tokens, dtype=torch.int64, device=device)
        self._block_tables = torch.zeros(max_rows, tables.width, dtype=torch.int32, device=device)
        self._sampled = torch.zeros(max_rows, dtype=torch.int64, device=device)
        self._wanted = torch.zeros(max_rows, dtype=torch.int32, device=device)

    def fill(self, bucket: Bucket) -> StepInputs:
        """Launch what takes the next step's description from the host and fills the inputs from it, its appended blocks
        written to the tables on the way."""
        tokens, rows = bucket.tokens, bucket.rows
        buffer, sent, tables = self._buffer, self._buffer.device, self._tables
        chain = chained(tables.tokens.device)
        numbers = buffer.packed.numel()
        receive_kernel[(triton.cdiv(numbers, RECEIVED),)](
            buffer.hosts, numbers, buffer.done, buffer.packed, len(sent.sampling), TURNS=len(buffer.hosts),
            NONE=PADDING, TILE=RECEIVED, **chain,
        )  # fmt: skip
        inputs_kernel[(rows + 1,)](
            sent.query_start,
            sent.ends,
            sent.lines,
            sent.appended,
            sent.places,
            sent.blocks,
            tables.tokens,
            tables.tokens.stride(0),
            tables.blocks,
            tables.width,
            self._token_ids,
            self._positions,
            self._slots,
            self._block_tables,
            self._sampled,
            sent.sampling,
            self._controls.words,
            self._controls.width,
            self._wanted,
            tokens,
            BLOCK_SIZE=tables.block_size,
            TILE=TILE,
            **chain,
        )
        layout = StepLayout(
            query_start=sent.query_start[: rows + 1],
            context_lens=sent.ends[:rows],
            block_tables=self._block_tables[:rows],
            slots=self._slots[:tokens],
            max_query=1 if bucket.decode else tokens,
            apart=bucket.decode,
        )
        return StepInputs(self._token_ids[:tokens], self._positions[:tokens], layout, self._sampled[:rows])

    def wanted(self, rows: int) -> torch.Tensor:
        """[R] int32: 1 for rows of the step filled last whose tokens are chosen by more than their best logit."""
        return self._wanted[:rows]

    def keep(self, sampled: torch.Tensor) -> None:
        """Write the token [R] int64 of each row that samples to the results and to the tables: an input of the next
        step. The step is done with that."""
        sent, tokens, results = self._buffer.device, self._tables.tokens, self._results
        keep_kernel[(1,)](
            sampled, sent.sampling, sent.ends, tokens, tokens.stride(0), sent.turn, results, results.stride(0),
            sent.serial, self._buffer.done, len(sampled), TILE=TILE, **chained(tokens.device),
        )  # fmt: skip


@triton.jit
def receive_kernel(
    hosts, numbers, done, packed, rows, TURNS: tl.constexpr, NONE: tl.constexpr, TILE: tl.constexpr, PDL: tl.constexpr
):
    """The lowest serial above the last one done, and all that comes with it; padding if there is none.

    The host's memory is read past the caches (``.cv``), and all of it at once, as each answer takes a microsecond. In a
    graph nothing comes before; where there are none, the step before does, and wrote ``done``.
    """
    announce(PDL)
    await_input(PDL)
    at = tl.program_id(0) * TILE + tl.arange(0, TILE)
    last = tl.load(done)
    nearest = tl.zeros([], tl.int32)
    found = tl.where(at == 0, last, 0)
    found = tl.where((at >= 2) & (at < 2 + rows), NONE, found)  # `Columns`: serial, turn, sampling
    for turn in tl.static_range(TURNS):
        host = hosts + turn * numbers
        ahead = tl.load(host, cache_modifier=".cv") - last
        numbers_there = tl.load(host + at, mask=at < numbers, cache_modifier=".cv")
        nearer = (ahead > 0) & ((nearest == 0) | (ahead < nearest))
        nearest = tl.where(nearer, ahead, nearest)
        found = tl.where(nearer, numbers_there, found)
    tl.store(packed + at, found, mask=at < numbers)


@triton.jit(do_not_specialize=["num_tokens"])
def inputs_kernel(
    query_start,
    ends,
    lines,
    appended,
    places,
    new_blocks,
    tokens,
    tokens_stride,
    blocks,
    width,
    token_ids,
    positions,
    slots,
    block_tables,
    sampled,
    sampling,
    words,
    words_width,
    wanted,
    num_tokens,
    BLOCK_SIZE: tl.constexpr,
    TILE: tl.constexpr,
    PDL: tl.constexpr,
):
    """One program a row, and one more for the tokens after the last row, which are padding.

    Appended blocks are written by whoever reads them, and all of them by the last program, so no program has to wait
    for another: several may write the same number to the same place.
    """
    announce(PDL)
    await_input(PDL)
    row = tl.program_id(0)
    rows = tl.num_programs(0) - 1
    first = tl.load(query_start + row)
    last = tl.load(query_start + row + 1, mask=row < rows, other=num_tokens)
    context = tl.load(ends + row, mask=row < rows, other=0)
    line = tl.load(lines + row, mask=row < rows, other=0)
    count = tl.load(appended)
    for start in range(0, count, TILE):
        entry = start + tl.arange(0, TILE)
        place = tl.load(places + entry, mask=entry < count, other=0)
        mine = (entry < count) & ((place // width == line) | (row == rows))
        tl.store(blocks + place, tl.load(new_blocks + entry, mask=mine, other=0), mask=mine)
    tl.debug_barrier()  # what one thread of this program wrote, the others read
    table = blocks + line.to(tl.int64) * width
    held = tl.cdiv(context, BLOCK_SIZE)
    for start in range(0, held, TILE):
        column = start + tl.arange(0, TILE)
        block = tl.load(table + column, mask=column < held, other=0)
        tl.store(block_tables + row.to(tl.int64) * width + column, block, mask=column < held)
    for start in range(first, last, TILE):
        token = start + tl.arange(0, TILE)
        real = (token < last) & (context > 0)
        position = tl.where(real, context - last + token, 0)
        known = tl.load(tokens + line.to(tl.int64) * tokens_stride + position, mask=real, other=0)
        block = tl.load(table + position // BLOCK_SIZE, mask=real, other=0)
        offset = tl.where(real, position, token) % BLOCK_SIZE
        tl.store(token_ids + token, known.to(tl.int64), mask=token < last)
        tl.store(positions + token, position.to(tl.int64), mask=token < last)
        tl.store(slots + token, block.to(tl.int64) * BLOCK_SIZE + offset, mask=token < last)
    tl.store(sampled + row, tl.maximum(last - 1, 0).to(tl.int64), mask=row < rows)
    if row < rows:
        place = tl.load(sampling + row)
        best = takes_best(words + tl.maximum(place, 0) * words_width, context)
        tl.store(wanted + row, ((place >= 0) & (best == 0)).to(tl.int32))


@triton.jit(do_not_specialize=["num_rows"])
def keep_kernel(
    chosen, sampling, ends, tokens, tokens_stride, turn, results, results_stride, serial, done, num_rows,
    TILE: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """A row's token goes to its line, at the position after its last computed one, and to the results of this turn: to
    the host's memory, past the caches (``.wt``)."""
    await_input(PDL)
    results += tl.load(turn) * results_stride
    for start in range(0, num_rows, TILE):
        row = start + tl.arange(0, TILE)
        line = tl.load(sampling + row, mask=row < num_rows, other=-1)
        end = tl.load(ends + row, mask=line >= 0, other=0)
        token = tl.load(chosen + row, mask=line >= 0, other=0)
        tl.store(results + row, token, mask=line >= 0, cache_modifier=".wt")
        tl.store(tokens + line.to(tl.int64) * tokens_stride + end, token.to(tl.int32), mask=line >= 0)
    tl.store(done, tl.load(serial))
