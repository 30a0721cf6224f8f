"""The runner for a GPU against the plain one: the same plans of a real scheduler give the same tokens and tables."""

from __future__ import annotations

import contextlib
import random

import pytest
import torch
from twin_runners import ROUNDING, TwinRunners, Twins, tiny_twins

from pellucid.attention import KVStorage
from pellucid.attention.triton import TritonAttention
from pellucid.engine.config import SchedulerConfig
from pellucid.engine.core import EngineCore
from pellucid.engine.scheduler import Scheduler
from pellucid.errors import InvariantViolation, MoveRefused
from pellucid.kv.manager import KVManager
from pellucid.lab.model_bed import NudgedModel
from pellucid.model import load
from pellucid.model.config import ModelConfig
from pellucid.model.llama import Model, tensor_shapes
from pellucid.model.weights import RandomWeights
from pellucid.ops import Scores
from pellucid.ops.triton import TritonOps
from pellucid.plan import Admission, Request, SamplingParams, StepPlan, StepResult
from pellucid.runtime.device_runner import FORBIDDEN_WIDTH, DeviceRunner
from pellucid.runtime.dictated import DictatedModel
from pellucid.runtime.runner import Runner

BLOCK, NUM_BLOCKS = 4, 26
LIMITS = {"max_num_seqs": 4, "max_num_batched_tokens": 24, "max_model_len": 90}
GREEDY = SamplingParams(temperature=0, max_tokens=12)
KINDS = (
    GREEDY,
    SamplingParams(temperature=0.9, seed=42, max_tokens=9),
    SamplingParams(temperature=1.2, top_p=0.9, top_k=40, max_tokens=8),
    SamplingParams(temperature=0.8, min_p=0.02, seed=2**63 + 5, max_tokens=7),
    SamplingParams(temperature=3.0, min_tokens=6, stop_token_ids=tuple(range(0, 60, 3)), max_tokens=8),
)


@pytest.fixture(scope="module")
def tiny() -> Twins:
    return tiny_twins()


def twins(tiny: Twins, *, in_step: bool = True, **limits: int) -> TwinRunners:
    return TwinRunners(tiny, NUM_BLOCKS, BLOCK, in_step=in_step, **LIMITS | limits)


def engine(tiny: Twins, executor: TwinRunners, *, asynchronous: bool) -> EngineCore:
    model = tiny.plain.config
    config = SchedulerConfig(**LIMITS, eos_token_ids=model.eos_token_ids, vocab_size=model.vocab_size)
    return EngineCore(Scheduler(KVManager(NUM_BLOCKS, BLOCK), config), executor, asynchronous=asynchronous)


def requests(rng: random.Random, count: int) -> list[Request]:
    """Prompts of up to 70 tokens, half of which begin like another one."""
    known: list[tuple[int, ...]] = []
    for _ in range(count):
        prompt = tuple(rng.randrange(256) for _ in range(rng.choice((1, 3, 8, 30, 60))))
        if known and rng.random() < 0.5:
            prompt = rng.choice(known)[: rng.randint(1, 60)] + prompt[:10]
        known.append(prompt)
    return [Request(name=f"R{i}", prompt=prompt, sampling=rng.choice(KINDS)) for i, prompt in enumerate(known)]


def disturb(core: EngineCore, rng: random.Random) -> set[str]:
    """Now and then a request is aborted, and a block moved; what of it happened while a step was in flight."""
    running, aborted = core.scheduler.running, set()
    if running and rng.random() < 0.05:
        core.abort(rng.choice(running).name)
        aborted = {"aborted in flight"} if core.scheduler.launched else {"aborted"}
    if running and rng.random() < 0.3:
        blocks = core.scheduler.kv.table(rng.choice(running).name)
        with contextlib.suppress(MoveRefused):
            core.move(rng.choice(blocks), rng.randrange(1, NUM_BLOCKS))
    return aborted


def what_happens(plans: list[StepPlan], room: int) -> set[str]:
    admissions = [admission for plan in plans for admission in plan.admitted]
    cases = {
        "mixed": any(1 in plan.counts and max(plan.counts) > 1 for plan in plans),
        "moved": any(plan.moves for plan in plans),
        "resumed": any(len(admission.tokens) > admission.prompt_len for admission in admissions),
        "hit": any(plan.starts[-1] and plan.handles[-1] == plan.admitted[-1].handle for plan in plans if plan.admitted),
        "too many blocks to send": any(sum(len(blocks) for _, blocks in plan.new_blocks) > room for plan in plans),
    }
    return {name for name, case in cases.items() if case}


@pytest.mark.parametrize("asynchronous", [False, True])
def test_random_requests_give_the_same_tokens_tables_and_pools(tiny: Twins, asynchronous: bool) -> None:
    """Asynchronously with graphs captured beforehand, where there are graphs; otherwise when first needed."""
    rng, executor = random.Random(29), twins(tiny, in_step=not asynchronous)
    core = engine(tiny, executor, asynchronous=asynchronous)
    if asynchronous:
        executor.device.every_step()
        captured: list[int] = []
        executor.device.capture(captured.append)
        assert sum(captured) == executor.device.graphs
        assert bool(captured) == torch.cuda.is_available()
    coming, happened = requests(rng, 10), set()
    while coming or core.has_unfinished_requests():
        while coming and rng.random() < 0.4:
            core.add(coming.pop())
        happened |= disturb(core, rng)
        core.step()
    executor.follow()
    executor.assert_same_pools()
    happened |= what_happens(executor.plans, executor.device._buffer.room)
    aborted = "aborted in flight" if asynchronous else "aborted"
    assert happened == {"mixed", "moved", "resumed", "hit", "too many blocks to send", aborted}


def plan(step: int, *rows: tuple[int, int, int, bool], **changes: tuple[object, ...]) -> StepPlan:
    """``rows`` are (handle, start, count, samples)."""
    handles, starts, counts, samples = zip(*rows, strict=True) if rows else ((), (), (), ())
    changes = {"released": (), "admitted": (), "new_blocks": (), "copies": ()} | changes
    return StepPlan(step, handles=handles, starts=starts, counts=counts, samples=samples, **changes)


def admit(handle: int, tokens: int, sampling: SamplingParams = GREEDY) -> Admission:
    return Admission(handle, f"R{handle}", tuple(range(10, 10 + tokens)), tokens, sampling)


def test_a_plan_without_rows_gives_nothing_but_is_applied(tiny: Twins) -> None:
    executor = twins(tiny)
    executor.launch(plan(1, admitted=(admit(1, 6),), new_blocks=((1, (9, 3)),), copies=((5, 9),)))
    assert executor.collect() == StepResult(1, ())
    executor.launch(plan(2, (1, 0, 6, True)))
    assert len(executor.collect().tokens) == 1


@pytest.mark.parametrize("seqs", [4, 70])
def test_rows_are_fewer_or_more_than_tokens(tiny: Twins, seqs: int) -> None:
    """Of a step of 64 tokens with padding: the last layer is for the rows that may sample, or for all tokens."""
    executor = twins(tiny, max_num_seqs=seqs, max_num_batched_tokens=90)
    rows = (admit(1, 3), admit(2, 9), admit(3, 5))
    blocks = ((1, (4,)), (2, (5, 6, 7)), (3, (8, 9)))
    executor.launch(plan(1, (1, 0, 3, True), (3, 0, 4, False), (2, 0, 9, True), admitted=rows, new_blocks=blocks))
    assert len(executor.collect().tokens) == 2  # as those of the other runner
    executor.launch(plan(2, (3, 4, 1, True), (1, 3, 1, True), (2, 9, 1, True)))
    assert len(executor.collect().tokens) == 3


def test_logits_can_be_observed(tiny: Twins) -> None:
    """Those of the rows that sample, in the order of the plan, before stop tokens are forbidden."""
    executor = twins(tiny)
    seen: dict[str, list[torch.Tensor]] = {"plain": [], "device": []}
    for name, kept in seen.items():
        getattr(executor, name)._on_logits = lambda plan, logits, kept=kept: kept.append(logits.clone().cpu())
    stops = SamplingParams(temperature=0, min_tokens=1, stop_token_ids=tuple(range(100)))
    rows = (admit(1, 3), admit(2, 9, stops), admit(3, 5))
    blocks = ((1, (4,)), (2, (5, 6, 7)), (3, (8, 9)))
    executor.launch(plan(1, (1, 0, 3, True), (3, 0, 4, False), (2, 0, 9, True), admitted=rows, new_blocks=blocks))
    tokens = executor.collect().tokens
    [plain], [device] = seen.values()
    assert plain.shape == (2, tiny.plain.config.vocab_size)
    torch.testing.assert_close(device, plain, **ROUNDING)
    assert tokens[0] == plain[0].argmax().item()


def test_more_forbidden_tokens_than_the_device_has_room_for(tiny: Twins) -> None:
    """The plain sampler takes over for as long as such a row runs."""
    stops = SamplingParams(temperature=2.0, seed=5, min_tokens=2, stop_token_ids=tuple(range(FORBIDDEN_WIDTH, 250)))
    executor = twins(tiny)
    rows = (admit(1, 5, stops), admit(2, 7, KINDS[1]))
    executor.launch(plan(1, (1, 0, 5, True), (2, 0, 7, True), admitted=rows, new_blocks=((1, (4, 5)), (2, (6, 7)))))
    executor.launch(plan(2, (2, 7, 1, True), (1, 5, 1, True)))
    assert executor.device.collect().tokens[0] not in stops.stop_token_ids
    assert executor.device.collect().tokens[1] not in stops.stop_token_ids
    executor.launch(
        plan(
            3,
            (2, 8, 1, True),
            (3, 0, 1, True),
            released=(1,),
            admitted=(admit(3, 1),),
            new_blocks=((2, (8,)), (3, (5,))),
        )
    )
    assert len(executor.device.collect().tokens) == 2


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        (plan(2, (2, 0, 1, True)), "no row 2"),
        (plan(2, released=(2,)), "no row 2"),
        (plan(2, new_blocks=((2, (5,)),)), "no row 2"),
        (plan(2, (1, 2, 1, False)), "Row 1 starts at 2, but 3 of its tokens are computed"),
        (plan(2, (1, 3, 0, False)), "Row 1 computes 0 tokens from 3, but knows 5 in all"),
        (plan(2, (1, 3, 3, True)), "Row 1 computes 3 tokens from 3, but knows 5 in all"),
        (plan(2, (1, 3, 1, True)), "Row 1 samples token 4, but 5 of its tokens are known"),
        (plan(2, (1, 3, 2, True)), "Row 1 computes up to token 5, but its 1 blocks of 4 hold 4"),
        (plan(2, (1, 3, 1, False), (1, 4, 1, True)), "Row 1 runs 2 times in one plan"),
        (plan(2, admitted=(admit(1, 2),)), "Row 1 is admitted but has not been released"),
        (
            plan(2, admitted=(admit(2, 2), admit(3, 2), admit(4, 2), admit(7, 2))),
            "Row 7 is admitted, but all 4 lines are taken",
        ),
        (plan(2, admitted=(admit(2, 93),)), "Row 2 comes with 93 tokens; the tables hold 92 a row"),
        (plan(2, new_blocks=((1, (0,)),)), "Row 1 is given block 0; a pool of 26 hands out 1 to 25"),
        (plan(2, new_blocks=((1, (26,)),)), "Row 1 is given block 26; a pool of 26 hands out 1 to 25"),
        (plan(2, new_blocks=((1, (5,) * 23),)), "Row 1 is given 23 blocks besides its 1; the tables hold 23 a row"),
        (plan(2, moves=((4, 26),)), "Block 4 is moved to block 26; a pool of 26 hands out 1 to 25"),
    ],
)
def test_plans_that_no_scheduler_makes_are_refused(tiny: Twins, wrong: StepPlan, why: str) -> None:
    runner = twins(tiny).device
    runner.launch(plan(1, (1, 0, 3, False), admitted=(admit(1, 5),), new_blocks=((1, (4,)),)))
    runner.collect()
    with pytest.raises(InvariantViolation, match=why):
        runner.launch(wrong)


def test_two_plans_may_be_in_flight(tiny: Twins) -> None:
    runner = twins(tiny).device
    runner.launch(plan(1, (1, 0, 2, True), admitted=(admit(1, 2),), new_blocks=((1, (4, 5)),)))
    runner.launch(plan(2, (1, 2, 1, True)))
    with pytest.raises(InvariantViolation, match="Step 3 was launched while steps 1, 2 are in flight"):
        runner.launch(plan(3, (1, 3, 1, True)))
    assert [runner.collect().step, runner.collect().step] == [1, 2]
    with pytest.raises(InvariantViolation, match="no step is in flight"):
        runner.collect()


def test_a_plan_without_rows_has_its_turn(tiny: Twins) -> None:
    """So nobody waits for a later step who waits for it."""
    runner = twins(tiny).device
    runner.launch(plan(1, (1, 0, 2, True), admitted=(admit(1, 2),), new_blocks=((1, (4, 5)),)))
    turns = [runner._buffer.turn]
    runner.launch(StepPlan(2, (), (), (), (), (), (), (), ()))
    turns.append(runner._buffer.turn)
    first = runner.collect()
    assert runner.collect() == StepResult(2, ())
    runner.launch(plan(3, (1, 2, 1, True)))
    turns.append(runner._buffer.turn)
    assert turns == [1, 0, 1]
    assert [len(first.tokens), len(runner.collect().tokens)] == [1, 1]


def test_rows_that_take_the_best_need_no_scores(device: torch.device, monkeypatch: pytest.MonkeyPatch) -> None:
    """A model in bfloat16, whose vocabulary's scores are not there but where they are wanted: the plain runner, which
    looks at all of them, chooses the same."""
    config = ModelConfig(
        architecture="LlamaForCausalLM", vocab_size=260, hidden_size=64, intermediate_size=128, num_layers=1,
        num_heads=4, num_kv_heads=2, head_dim=16, max_position=96,
    )  # fmt: skip
    model = Model(config, RandomWeights(tensor_shapes(config), 0), TritonOps(torch.bfloat16), device)
    taken: list[torch.Tensor] = []

    def noted(hidden: torch.Tensor, wanted: torch.Tensor) -> Scores:
        logits, best = Model.wanted_scores(model, hidden, wanted)
        assert best is not None
        taken.append(wanted[:3].clone())
        return Scores(torch.where(wanted[:, None] != 0, logits, torch.nan), best)

    monkeypatch.setattr(model, "wanted_scores", noted)
    kinds = (GREEDY, KINDS[1], SamplingParams(temperature=0, min_tokens=2, stop_token_ids=tuple(range(31))))
    assert len(kinds[2].stop_token_ids) < FORBIDDEN_WIDTH  # with the end token: else it is sampled plainly
    tokens = []
    for runs in (DeviceRunner, Runner):
        limits = LIMITS | {"enforce_eager": True} if runs is DeviceRunner else {}  # a graph would not note again
        storage = KVStorage(1, NUM_BLOCKS, 16, 2, 16, torch.bfloat16, device)
        runner = runs(model, storage, TritonAttention(), eos_token_ids=(3,), **limits)
        admitted = tuple(Admission(n, f"R{n}", tuple(range(n, 7 + n)), 7, kind) for n, kind in enumerate(kinds))
        blocks = tuple((n, (n + 1,)) for n in range(3))
        rows = (0, 1, 2)
        runner.launch(StepPlan(1, (), admitted, blocks, (), rows, (0, 0, 0), (7, 7, 7), (True, True, True)))
        tokens.append([runner.collect().tokens])
        for step in range(2, 5):
            starts = (step + 5,) * 3
            runner.launch(StepPlan(step, (), (), (), (), rows, starts, (1, 1, 1), (True, True, True)))
            tokens[-1].append(runner.collect().tokens)
    assert tokens[0] == tokens[1]
    assert [wanted.tolist() for wanted in taken[-4:]] == [[0, 1, 1], [0, 1, 1], [0, 1, 0], [0, 1, 0]]


def test_a_prefix_that_another_request_fills_in_the_same_step(device: torch.device) -> None:
    """All compute one token each, and yet not apart: the new one, whose context would be read first, hits the block
    whose last slot the other writes."""
    config = ModelConfig(
        architecture="Qwen3ForCausalLM", vocab_size=260, hidden_size=64, intermediate_size=128, num_layers=1,
        num_heads=4, num_kv_heads=2, head_dim=16, max_position=96, qk_norm=True,
    )  # fmt: skip
    model = Model(config, RandomWeights(tensor_shapes(config), 0), TritonOps(torch.float32), device)
    prompts = tuple(range(BLOCK)), tuple(range(BLOCK + 1))
    filled, hits = (Admission(n, f"R{n}", tokens, len(tokens), GREEDY) for n, tokens in enumerate(prompts))
    tokens, pools = [], []
    for runs in (DeviceRunner, Runner):
        limits = LIMITS if runs is DeviceRunner else {}
        storage = KVStorage(1, NUM_BLOCKS, BLOCK, 2, 16, torch.float32, device)
        runner = runs(model, storage, TritonAttention(), **limits)
        runner.launch(StepPlan(1, (), (filled,), ((0, (1,)),), (), (0,), (0,), (BLOCK - 1,), (False,)))
        blocks = ((1, (1, 2)),)
        runner.launch(StepPlan(2, (), (hits,), blocks, (), (1, 0), (BLOCK, BLOCK - 1), (1, 1), (True, True)))
        tokens.append([runner.collect().tokens, runner.collect().tokens])
        pools.append(storage.tensor[:, :, 1:3])
    assert tokens[0] == tokens[1]
    torch.testing.assert_close(*pools, **ROUNDING)


def test_pool_is_where_the_tensor_is(tiny: Twins) -> None:
    executor = twins(tiny)
    tensor = executor.storages[1].tensor
    assert (executor.device.pool_address, executor.device.pool_bytes) == (tensor.data_ptr(), tensor.nbytes)


@torch.inference_mode()
@pytest.mark.parametrize("kind", ["nudged", "dictated"])
def test_models_that_change_their_logits_have_them_all(kind: str, device: torch.device) -> None:
    """So that no best that was found before the change is taken."""
    loaded = load("tiny", dtype="bfloat16" if device.type == "cuda" else "float32", device=str(device))
    model = NudgedModel(loaded.model, 5) if kind == "nudged" else DictatedModel(loaded.model, 3)
    hidden = torch.randn(3, loaded.config.hidden_size, device=device, dtype=loaded.model.dtype)
    logits, best = model.wanted_scores(hidden, torch.zeros(3, dtype=torch.int32, device=device))
    assert best is None
    assert torch.equal(logits, model.logits(hidden))
    assert not torch.equal(logits, loaded.model.logits(hidden))
