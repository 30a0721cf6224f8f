"""The runner for a GPU against the plain one: the same plans of a real scheduler give the same tokens and tables."""

from __future__ import annotations

import random

import pytest
import torch
from twin_runners import TwinRunners

from pellucid.engine.config import SchedulerConfig
from pellucid.engine.core import EngineCore
from pellucid.engine.scheduler import Scheduler
from pellucid.errors import InvariantViolation, MoveRefused
from pellucid.kv.manager import KVManager
from pellucid.model import LoadedModel, load
from pellucid.plan import Admission, Request, SamplingParams, StepPlan
from pellucid.runtime.device_runner import FORBIDDEN_WIDTH

BLOCK, NUM_BLOCKS, LONGEST = 4, 26, 90
KINDS = (
    SamplingParams(temperature=0, max_tokens=14),
    SamplingParams(temperature=0.9, seed=42, max_tokens=9),
    SamplingParams(temperature=1.2, top_p=0.9, top_k=40, max_tokens=12),
    SamplingParams(temperature=0.8, min_p=0.02, seed=2**63 + 5, max_tokens=7),
    SamplingParams(temperature=3.0, min_tokens=6, stop_token_ids=tuple(range(0, 60, 3)), max_tokens=10),
)


@pytest.fixture(scope="module")
def tiny() -> LoadedModel:
    return load("tiny", dtype="float32", device="cuda" if torch.cuda.is_available() else "cpu")


def engine(tiny: LoadedModel, *, asynchronous: bool, seqs: int = 4, budget: int = 24) -> EngineCore:
    kv = KVManager(NUM_BLOCKS, BLOCK)
    limits = {"max_num_seqs": seqs, "max_num_batched_tokens": budget, "max_model_len": LONGEST}
    eos = tiny.config.eos_token_ids
    scheduler = Scheduler(kv, SchedulerConfig(**limits, eos_token_ids=eos, vocab_size=tiny.config.vocab_size))
    runner = TwinRunners(tiny, NUM_BLOCKS, BLOCK, eos, **limits)
    return EngineCore(scheduler, runner, asynchronous=asynchronous)


def requests(rng: random.Random, count: int) -> list[Request]:
    """Prompts of up to 70 tokens, half of which begin like another one."""
    known: list[tuple[int, ...]] = []
    made = []
    for number in range(count):
        prompt = tuple(rng.randrange(256) for _ in range(rng.choice((1, 3, 8, 30, 60))))
        if known and rng.random() < 0.5:
            prompt = rng.choice(known)[: rng.randint(1, 60)] + prompt[:10]
        known.append(prompt)
        made.append(Request(name=f"R{number}", prompt=prompt, sampling=rng.choice(KINDS)))
    return made


def disturb(core: EngineCore, rng: random.Random) -> None:
    """Now and then a request is aborted, and a block moved."""
    running = core.scheduler.running
    if running and rng.random() < 0.02:
        core.abort(rng.choice(running).name)
    if running and rng.random() < 0.3:
        blocks = core.scheduler.kv.table(rng.choice(running).name)
        try:
            core.move(rng.choice(blocks), rng.randrange(1, NUM_BLOCKS))
        except MoveRefused:
            pass


@pytest.mark.parametrize("asynchronous", [False, True])
@pytest.mark.parametrize("seed", [1, 2])
def test_random_requests_give_the_same_tokens_tables_and_pools(
    tiny: LoadedModel, seed: int, asynchronous: bool
) -> None:
    rng, core = random.Random(seed), engine(tiny, asynchronous=asynchronous)
    coming = requests(rng, 10)
    while coming or core.has_unfinished_requests():
        while coming and rng.random() < 0.4:
            core.add(coming.pop())
        disturb(core, rng)
        core.step()
    twins = core.executor
    assert isinstance(twins, TwinRunners)
    twins.assert_same_pools()
    print(what_happens(twins.plans, twins.device._buffer.room), len(twins.plans))
    happened = set()
    happened.update(what_happens(twins.plans, twins.device._buffer.room))


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
