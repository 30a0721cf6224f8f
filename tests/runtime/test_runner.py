"""The runner on a model that only counts, so that every number of its inputs is known."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
import torch

from pellucid.attention import AttentionBackend, KVStorage, ReferenceAttention, StepLayout
from pellucid.errors import InvariantViolation
from pellucid.plan import Admission, SamplingParams, StepPlan, StepResult
from pellucid.runtime.runner import Runner

VOCAB = 1000
BLOCK = 4
GREEDY = SamplingParams(temperature=0)


@dataclass
class Successor:
    """The likeliest token after ``t`` is ``t + 1``. Keeps what it was called with, and the pool's K of that moment."""

    calls: list[tuple[list[int], list[int], StepLayout]] = field(default_factory=list)
    pools: list[torch.Tensor] = field(default_factory=list)
    hidden_rows: list[int] = field(default_factory=list)

    def forward(
        self,
        token_ids: torch.Tensor,
        positions: torch.Tensor,
        kv: KVStorage,
        layout: StepLayout,
        attention: AttentionBackend,
        wanted: torch.Tensor | None = None,
    ) -> torch.Tensor:
        self.calls.append((token_ids.tolist(), positions.tolist(), layout))
        self.pools.append(kv.tensor[0, 0, :, 0, 0, 0].clone())
        return token_ids.float().unsqueeze(1)[... if wanted is None else wanted]

    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        self.hidden_rows.append(len(hidden))
        return -(torch.arange(VOCAB) - hidden - 1).abs()


def make_runner(**options: object) -> tuple[Runner, Successor, KVStorage]:
    model = Successor()
    storage = KVStorage(1, 40, BLOCK, 1, 2, torch.float32)
    return Runner(model, storage, ReferenceAttention(), **options), model, storage  # type: ignore[arg-type]


def admit(handle: int, tokens: tuple[int, ...], prompt_len: int = 0, sampling: SamplingParams = GREEDY) -> Admission:
    return Admission(handle, f"R{handle}", tokens, prompt_len or len(tokens), sampling)


def plan(
    step: int,
    *rows: tuple[int, int, int, bool],
    released: tuple[int, ...] = (),
    admitted: tuple[Admission, ...] = (),
    blocks: tuple[tuple[int, tuple[int, ...]], ...] = (),
    copies: tuple[tuple[int, int], ...] = (),
    moves: tuple[tuple[int, int], ...] = (),
) -> StepPlan:
    """``rows`` are (handle, start, count, samples)."""
    handles, starts, counts, samples = zip(*rows, strict=True) if rows else ((), (), (), ())
    return StepPlan(step, released, admitted, blocks, copies, handles, starts, counts, samples, moves)


def test_inputs_of_a_mixed_step() -> None:
    """A decode, a middle chunk and a whole prompt behind a prefix hit of four tokens, in this order."""
    runner, model, _ = make_runner()
    first = (admit(1, (10, 11, 12)), admit(2, tuple(range(100, 112))))
    runner.launch(plan(1, (1, 0, 3, True), (2, 0, 5, False), admitted=first, blocks=((1, (9,)), (2, (30, 7)))))
    assert runner.collect() == StepResult(1, (13,))
    third = admit(3, (200, 201, 202, 203, 204, 205))
    runner.launch(
        plan(
            2,
            (1, 3, 1, True),
            (2, 5, 4, False),
            (3, 4, 2, True),
            admitted=(third,),
            blocks=((2, (21,)), (3, (30, 5))),
        )
    )
    assert runner.collect() == StepResult(2, (14, 206))
    token_ids, positions, layout = model.calls[1]
    assert token_ids == [13, 105, 106, 107, 108, 204, 205]
    assert positions == [3, 5, 6, 7, 8, 4, 5]
    assert layout.query_start.tolist() == [0, 1, 5, 7]
    assert layout.context_lens.tolist() == [4, 9, 6]
    assert layout.block_tables.tolist() == [[9, 0, 0], [30, 7, 21], [30, 5, 0]]
    assert layout.slots.tolist() == [9 * 4 + 3, 7 * 4 + 1, 7 * 4 + 2, 7 * 4 + 3, 21 * 4, 5 * 4, 5 * 4 + 1]
    assert layout.max_query == 4
    dtypes = (layout.query_start.dtype, layout.context_lens.dtype, layout.block_tables.dtype, layout.slots.dtype)
    assert dtypes == (torch.int32, torch.int32, torch.int32, torch.int64)
    assert model.hidden_rows == [1, 2]


def test_a_plan_may_use_tokens_nobody_has_collected_yet() -> None:
    runner, model, _ = make_runner()
    runner.launch(plan(1, (1, 0, 2, True), admitted=(admit(1, (10, 11)),), blocks=((1, (3, 4)),)))
    runner.launch(plan(2, (1, 2, 1, True)))
    assert model.calls[1][:2] == ([12], [2])
    with pytest.raises(InvariantViolation, match="Step 3 was launched while steps 1, 2 are in flight"):
        runner.launch(plan(3, (1, 3, 1, True)))
    assert runner.collect() == StepResult(1, (12,))
    runner.launch(plan(3, (1, 3, 1, True)))
    assert (runner.collect(), runner.collect()) == (StepResult(2, (13,)), StepResult(3, (14,)))
    with pytest.raises(InvariantViolation, match="no step is in flight"):
        runner.collect()


def test_a_chunk_that_samples_nothing_asks_for_no_logits() -> None:
    runner, model, _ = make_runner()
    runner.launch(plan(1, (1, 0, 2, False), admitted=(admit(1, (10, 11, 12)),), blocks=((1, (3,)),)))
    assert runner.collect() == StepResult(1, ())
    assert model.hidden_rows == []


def test_a_plan_without_rows_gives_nothing_but_is_applied() -> None:
    runner, model, storage = make_runner()
    storage.tensor[:, :, 5] = 7.0
    runner.launch(plan(1, admitted=(admit(1, (10, 11)),), blocks=((1, (6,)),), copies=((5, 6),)))
    assert runner.collect() == StepResult(1, ())
    assert model.calls == []
    assert (storage.tensor[:, :, 6] == 7).all()
    runner.launch(plan(2, (1, 0, 2, True)))
    assert runner.collect() == StepResult(2, (12,))


def test_copies_are_made_before_the_rows_run() -> None:
    runner, model, storage = make_runner()
    storage.tensor[:, :, 5] = 7.0
    row = admit(1, (10, 11, 12, 13, 14))
    runner.launch(plan(1, (1, 2, 3, True), admitted=(row,), blocks=((1, (6, 8)),), copies=((5, 6),)))
    assert model.pools[0].nonzero().flatten().tolist() == [5, 6]


def test_moved_blocks_are_replaced_in_every_table_before_new_ones_are_appended() -> None:
    """7 goes to 9 and its place to 30's block; what is appended as 7 is another request's from now on."""
    runner, model, storage = make_runner()
    rows = (admit(1, tuple(range(10, 16))), admit(2, tuple(range(10, 16))))
    runner.launch(plan(1, (1, 0, 6, True), (2, 4, 2, True), admitted=rows, blocks=((1, (7, 30)), (2, (7, 8)))))
    storage.tensor[:, :, 7], storage.tensor[:, :, 30] = 7.0, 30.0
    runner.launch(
        plan(
            2,
            (1, 6, 1, True),
            (2, 6, 1, True),
            (3, 0, 1, True),
            admitted=(admit(3, (50,)),),
            blocks=((3, (30,)),),
            moves=((7, 9), (30, 7)),
            copies=((7, 9), (30, 7)),
        )
    )
    assert model.calls[1][2].block_tables.tolist() == [[9, 7], [9, 8], [30, 0]]
    assert model.pools[1][[9, 7]].tolist() == [7.0, 30.0]


@pytest.mark.parametrize("move", [(0, 5), (5, 0), (5, 40), (-1, 5)])
def test_moves_that_no_scheduler_makes_are_refused(move: tuple[int, int]) -> None:
    runner, _, _ = make_runner()
    with pytest.raises(InvariantViolation, match="a pool of 40 hands out 1 to 39"):
        runner.launch(plan(1, (1, 0, 1, True), admitted=(admit(1, (1,)),), blocks=((1, (5,)),), moves=(move,)))


def test_a_place_that_is_used_again_keeps_nothing_of_its_former_row() -> None:
    """Row 1 had three blocks and twelve tokens; row 2 gets its place, one block, and later a second."""
    runner, model, _ = make_runner()
    runner.launch(
        plan(1, (1, 0, 12, True), admitted=(admit(1, tuple(range(50, 62))),), blocks=((1, (3, 4, 5)),)),
    )
    others = (admit(2, (10, 11, 12)), admit(3, tuple(range(70, 82))))
    runner.launch(
        plan(
            2,
            (2, 0, 3, True),
            (3, 0, 12, True),
            released=(1,),
            admitted=others,
            blocks=((2, (9,)), (3, (4, 5, 6))),
        )
    )
    assert model.calls[1][2].block_tables.tolist() == [[9, 0, 0], [4, 5, 6]]
    runner.collect()
    runner.launch(plan(3, (2, 3, 1, True)))
    runner.collect()
    runner.launch(plan(4, (2, 4, 1, True), blocks=((2, (8,)),)))
    assert model.calls[3][0] == [14]
    assert model.calls[3][2].block_tables.tolist() == [[9, 8]]


def test_a_pre_empted_request_starts_again_under_its_handle_with_another_table() -> None:
    runner, model, _ = make_runner()
    runner.launch(plan(1, (1, 0, 3, True), admitted=(admit(1, (10, 11, 12)),), blocks=((1, (3,)),)))
    runner.collect()
    runner.launch(plan(2, released=(1,)))
    runner.collect()
    again = admit(1, (10, 11, 12, 13), prompt_len=3)
    runner.launch(plan(3, (1, 0, 4, True), admitted=(again,), blocks=((1, (8,)),)))
    assert runner.collect() == StepResult(3, (14,))
    assert model.calls[1][2].block_tables.tolist() == [[8]]


def test_tables_grow_with_rows_tokens_and_blocks() -> None:
    runner, model, _ = make_runner()
    for handle in range(1, 20):
        runner.launch(
            plan(handle, (handle, 0, 1, True), admitted=(admit(handle, (handle,)),), blocks=((handle, (handle,)),))
        )
        assert runner.collect().tokens == (handle + 1,)
    for length in range(1, 60):
        new = ((7, (20 + length // BLOCK,)),) if length % BLOCK == 0 else ()
        runner.launch(plan(100 + length, (7, length, 1, True), blocks=new))
        assert runner.collect().tokens == (8 + length,)
    assert model.calls[-1][2].block_tables.tolist() == [[7, *range(21, 35)]]
    runner.launch(plan(200, *((handle, 1, 1, True) for handle in range(1, 20) if handle != 7)))
    assert runner.collect().tokens == tuple(handle + 2 for handle in range(1, 20) if handle != 7)


def test_a_table_too_short_for_its_tokens_is_refused() -> None:
    runner, _, _ = make_runner()
    with pytest.raises(InvariantViolation, match="Row 1 computes up to token 5, but its 1 blocks of 4 hold 4"):
        runner.launch(plan(1, (1, 0, 5, False), admitted=(admit(1, (1, 2, 3, 4, 5)),), blocks=((1, (3,)),)))


@pytest.mark.parametrize("block", [-1, 0, 40])
def test_blocks_that_are_nobodys_to_hold_are_refused(block: int) -> None:
    runner, _, _ = make_runner()
    with pytest.raises(InvariantViolation, match=f"Row 1 is given block {block}; a pool of 40 hands out 1 to 39"):
        runner.launch(plan(1, (1, 0, 1, True), admitted=(admit(1, (1,)),), blocks=((1, (block,)),)))


def test_blocks_for_an_unknown_row_are_refused() -> None:
    runner, _, _ = make_runner()
    with pytest.raises(InvariantViolation, match="no row 2"):
        runner.launch(plan(1, admitted=(admit(1, (1,)),), blocks=((2, (3,)),)))


def test_min_tokens_counts_output_across_a_resume() -> None:
    """The likeliest tokens 12, 13, 14, … are all stops; from output 3 on they are allowed."""
    stops = SamplingParams(temperature=0, min_tokens=3, stop_token_ids=tuple(range(12, 30)))
    runner, _, _ = make_runner(eos_token_ids=(10, 11))
    runner.launch(plan(1, (1, 0, 2, True), admitted=(admit(1, (10, 11), sampling=stops),), blocks=((1, (3,)),)))
    assert runner.collect().tokens == (9,)
    resumed = admit(1, (10, 11, 9, 9), prompt_len=2, sampling=stops)
    runner.launch(plan(2, (1, 0, 4, True), released=(1,), admitted=(resumed,), blocks=((1, (4, 5)),)))
    assert runner.collect().tokens == (9,)
    runner.launch(plan(3, (1, 4, 1, True)))
    assert runner.collect().tokens == (10,)


def test_logits_can_be_observed_before_they_are_used_up() -> None:
    seen: list[tuple[int, torch.Tensor]] = []
    runner, _, _ = make_runner(on_logits=lambda plan, logits: seen.append((plan.step, logits.clone())))
    sampling = SamplingParams(temperature=0, min_tokens=1, stop_token_ids=(12,))
    runner.launch(plan(1, (1, 0, 2, True), admitted=(admit(1, (10, 11), sampling=sampling),), blocks=((1, (3,)),)))
    assert runner.collect().tokens == (11,)
    [(step, logits)] = seen
    assert step == 1
    assert logits.shape == (1, VOCAB)
    assert logits.argmax().item() == 12


def test_pool_is_where_the_tensor_is() -> None:
    runner, _, storage = make_runner()
    assert (runner.pool_address, runner.pool_bytes) == (storage.tensor.data_ptr(), 40 * 4 * 2 * 2 * 4)
