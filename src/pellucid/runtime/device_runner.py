"""The runner for a GPU: a step is one graph, from what the host says of it to the tokens in the host's hands."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext

import torch

from pellucid.attention import AttentionBackend, KVStorage
from pellucid.errors import RequestError
from pellucid.plan import Admission, StepPlan, StepResult
from pellucid.runtime.buckets import Bucket, Buckets
from pellucid.runtime.controls import Controls
from pellucid.runtime.device_tables import NOTHING_APPENDED, DeviceTables
from pellucid.runtime.flight import InFlight
from pellucid.runtime.graphs import Graphs
from pellucid.runtime.lines import Lines, Ranges
from pellucid.runtime.results import Result, Results
from pellucid.runtime.runner import CausalModel
from pellucid.runtime.sampler import Draw, sample
from pellucid.runtime.step_buffer import StepBuffer
from pellucid.runtime.triton_inputs import DeviceInputs
from pellucid.runtime.triton_sampler import choose

FORBIDDEN_WIDTH = 32
"""Token ids a row may not sample before its ``min_tokens``, at most, if the sampler on the device is to know them."""


class DeviceRunner:
    """Runs plans on a model, as `Runner` does, without the host ever waiting for the device but in `collect`.

    Everything a plan asks for is queued on the current stream, in order: tokens of admitted requests, moves, copies,
    and a graph that takes the step's description from the host's memory and makes its inputs, runs model and sampler,
    and writes the tokens into the tables and to the host. Nothing lies between the graphs of two steps that only
    decode. So a step reads what the one before it sampled, although the host has not seen it yet, and no block is
    written by one step while another reads it. `collect` waits for the event behind its own step only: once
    a result is committed, and the fences of its blocks fall (I10), the device has made the writes they stood for.

    A step is padded to a bucket: its padding rows have no context, and its padding tokens write to block 0 or nothing.
    With ``enforce_eager``, and on a CPU, the same launches are made one by one instead of as a graph; so they are while
    ``on_logits`` wants to see the logits [S, vocab_size] of the rows that sample (a copy, the caller's to keep), and
    while a row runs that may not sample more than `FORBIDDEN_WIDTH` tokens before its ``min_tokens``.

    `launch` raises `InvariantViolation` for a plan that does not fit the rows as earlier plans left them.
    """

    def __init__(
        self,
        model: CausalModel,
        storage: KVStorage,
        attention: AttentionBackend,
        *,
        max_num_seqs: int,
        max_num_batched_tokens: int,
        max_model_len: int,
        eos_token_ids: Sequence[int] = (),
        seed: int = 0,
        enforce_eager: bool = False,
        on_logits: Callable[[StepPlan, torch.Tensor], None] | None = None,
    ) -> None:
        device = storage.tensor.device
        self._model, self._storage, self._attention = model, storage, attention
        self._eos_token_ids = tuple(eos_token_ids)
        self._seed = seed
        self._on_logits = on_logits
        self._device = device
        self._buckets = Buckets(max_num_seqs, max_num_batched_tokens)
        self._lines = Lines(max_num_seqs)
        self._tables = DeviceTables(max_num_seqs, max_model_len, storage.block_size, storage.num_blocks, device)
        room = 2 * max_num_seqs + max_num_batched_tokens // storage.block_size
        self._buffer = StepBuffer(max_num_seqs, room, device)
        self._results = Results(max_num_seqs, device)
        self._controls = Controls(max_num_seqs, FORBIDDEN_WIDTH, device)
        self._inputs = DeviceInputs(self._buffer, self._tables, self._buckets, self._controls, self._results.tokens)
        self._plain: set[int] = set()  # lines that the sampler on the device cannot serve
        self._tokens = torch.zeros(max_num_seqs, dtype=torch.int64, device=device)
        self._flying: InFlight[Result] = InFlight()
        with self._on_device():
            self._graphs = None if enforce_eager or device.type != "cuda" else Graphs(device)

    @property
    def pool_address(self) -> int:
        """Where the KV pool begins, as its tensor says now."""
        return self._storage.address

    @property
    def pool_bytes(self) -> int:
        """Bytes of the KV pool, as its tensor says now."""
        return self._storage.nbytes

    @property
    def graphs(self) -> int:
        """How many graphs `capture` makes."""
        return len(self._buckets.largest_first) if self._graphs else 0

    @torch.inference_mode()
    def capture(self, done: Callable[[int], None]) -> None:
        """Capture the graphs of all buckets now, instead of each when it is first needed; ``done(1)`` after each.

        Each step is run as padding only, then captured: call this before the first plan. What `every_step` has not
        had compiled is compiled one kernel after the other. Without graphs there is nothing to do.
        """
        if self._graphs is None:
            return
        with self._on_device():
            for bucket in self._buckets.largest_first:
                self._graphs.capture(self._step, bucket)
                done(1)
            torch.cuda.empty_cache()  # what the steps took while they ran as they are

    @torch.inference_mode()
    def every_step(self) -> None:
        """Run a step of each bucket as it is, of padding only: with `compile_ahead`, to have their kernels."""
        with self._on_device():
            for bucket in self._buckets.largest_first:
                self._step(bucket)

    @torch.inference_mode()
    def launch(self, plan: StepPlan) -> None:
        """Queue ``plan`` on the device, and return."""
        self._flying.refuse_more(plan.step)
        with self._on_device():
            self._admit(plan.admitted, self._lines.apply(plan))
            self._tables.move(plan.moves)
            self._flying.put(plan.step, self._run(plan))

    def collect(self) -> StepResult:
        """The result of the oldest plan in flight; waits for that step, and for no later one."""
        step, result = self._flying.take()
        return StepResult(step, result.wait())

    def _admit(self, admitted: tuple[Admission, ...], lines: list[int]) -> None:
        if not admitted:
            return
        self._tables.admit(admitted, lines)
        records: dict[int, tuple[int, ...]] = {}
        for admission, line in zip(admitted, lines, strict=True):
            self._plain.discard(line)
            try:
                records[line] = self._controls.record(self._draw(line, admission.prompt_len), self._eos_token_ids)
            except RequestError:  # more forbidden tokens than there is room for
                self._plain.add(line)
        if records:
            self._controls.put(list(records), list(records.values()))

    def _run(self, plan: StepPlan) -> Result:
        appended = self._tables.append(plan, self._lines)
        ranges = self._lines.advance(plan)
        self._tables.check_room(ranges, plan)
        rows = len(ranges.lines)
        if not rows or len(appended.places) > self._buffer.room:
            self._tables.write(appended)
            appended = NOTHING_APPENDED
        self._storage.copy_blocks(plan.copies)
        turn = self._buffer.turn
        if rows:
            bucket = self._buckets.holding(int(ranges.counts.sum()), rows, admits=bool(plan.admitted))
            self._buffer.describe(ranges, bucket, appended)
            self._compute(plan, ranges, bucket)
        self._buffer.launched()
        return self._results.of(turn, ranges.samples)

    def _compute(self, plan: StepPlan, ranges: Ranges, bucket: Bucket) -> None:
        plainly = not self._plain.isdisjoint(ranges.lines.tolist()) if self._plain else False
        if self._on_logits or plainly:
            self._step_in_sight(plan, ranges, bucket, plainly)
        elif self._graphs:
            self._graphs.run(self._step, bucket)
        else:
            self._step(bucket)

    def _step(self, bucket: Bucket) -> None:
        """All that the device does in a step: nothing here depends on anything but the sizes of ``bucket``."""
        hidden = self._hidden(bucket)
        self._choose(*self._model.wanted_scores(hidden, self._inputs.wanted(bucket.rows)))
        self._inputs.keep(self._tokens[: bucket.rows])

    def _step_in_sight(self, plan: StepPlan, ranges: Ranges, bucket: Bucket, plainly: bool) -> None:
        """The same, its logits shown to ``on_logits``, and sampled ``plainly`` if a row needs that."""
        logits = self._model.logits(self._hidden(bucket))
        rows = torch.from_numpy(ranges.samples.nonzero()[0]).to(self._device)
        if self._on_logits and len(rows):
            self._on_logits(plan, logits[rows])
        if not plainly:
            self._choose(logits, None)
        elif len(rows):
            sampling = ranges.lines[ranges.samples].tolist(), ranges.ends[ranges.samples].tolist()
            draws = [self._draw(line, position) for line, position in zip(*sampling, strict=True)]
            self._tokens[rows] = sample(logits[rows], draws, self._eos_token_ids, compiled=False)
        self._inputs.keep(self._tokens[: bucket.rows])

    def _hidden(self, bucket: Bucket) -> torch.Tensor:
        """Hidden states [R, hidden_size] of the last token of every row of the step that comes next."""
        inputs = self._inputs.fill(bucket)
        wanted = inputs.sampled if bucket.rows < bucket.tokens else None  # if they are less work than all
        hidden = self._model.forward(
            inputs.token_ids, inputs.positions, self._storage, inputs.layout, self._attention, wanted
        )
        gathers = not bucket.decode and wanted is None
        return hidden.index_select(0, inputs.sampled) if gathers else hidden

    def _choose(self, logits: torch.Tensor, best: torch.Tensor | None) -> None:
        rows, sent = len(logits), self._buffer.device
        choose(logits, sent.sampling[:rows], sent.ends[:rows], self._controls, self._tokens[:rows], best)

    def _draw(self, line: int, position: int) -> Draw:
        return Draw.of(self._lines.occupant(line), position, self._seed)

    def _on_device(self) -> AbstractContextManager[object]:
        """Kernels are launched on the device that is current."""
        return torch.cuda.device(self._device) if self._device.type == "cuda" else nullcontext()
