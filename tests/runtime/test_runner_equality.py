"""With a real model in float32: however its tokens are cut into steps and batches, a request's output is the same."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import pytest
import torch

from pellucid import model as models
from pellucid.attention import KVStorage, ReferenceAttention
from pellucid.plan import Admission, SamplingParams, StepPlan
from pellucid.runtime.runner import Runner

BLOCK, NUM_BLOCKS = 4, 200
OUTPUTS = 24


@pytest.fixture(scope="module")
def tiny() -> models.LoadedModel:
    return models.load("tiny", dtype="float32")


@dataclass
class Generation:
    name: str
    tokens: list[int]
    prompt_len: int
    sampling: SamplingParams
    blocks: list[int] = field(default_factory=list)
    computed: int = 0
    new: bool = True

    @property
    def done(self) -> bool:
        return len(self.tokens) == self.prompt_len + OUTPUTS


class Driver:
    """The least scheduler that can drive a runner: the test says who computes how much; blocks come shuffled."""

    def __init__(self, loaded: models.LoadedModel, seed: int = 0) -> None:
        config = loaded.config
        self.storage = KVStorage(
            config.num_layers, NUM_BLOCKS, BLOCK, config.num_kv_heads, config.head_dim, torch.float32
        )
        self.runner = Runner(loaded.model, self.storage, ReferenceAttention(), seed=seed)
        self.free = list(range(1, NUM_BLOCKS))
        random.Random(4).shuffle(self.free)
        self.live: dict[int, Generation] = {}
        self.released: list[int] = []
        self.step = 0

    def add(self, handle: int, prompt: list[int], sampling: SamplingParams) -> None:
        self.live[handle] = Generation(f"R{handle}", list(prompt), len(prompt), sampling)

    def pre_empt(self, handle: int) -> None:
        """Free all its blocks, spoilt and to be the next handed out; the request starts again with its next step."""
        request = self.live[handle]
        self.storage.tensor[:, :, request.blocks] = torch.nan
        self.free += request.blocks
        self.released.append(handle)
        request.blocks, request.computed, request.new = [], 0, True

    def launch(self, work: Mapping[int, int]) -> list[int]:
        """Launch a step that computes so many tokens of each handle; the handles that sample."""
        self.step += 1
        admitted, new_blocks, rows = [], [], []
        for handle, count in work.items():
            request = self.live[handle]
            if request.new:
                admitted.append(
                    Admission(handle, request.name, tuple(request.tokens), request.prompt_len, request.sampling)
                )
                request.new = False
            end = request.computed + count
            blocks = tuple(self.free.pop() for _ in range(-(-end // BLOCK) - len(request.blocks)))
            request.blocks += blocks
            new_blocks.append((handle, blocks))
            rows.append((handle, request.computed, count, end >= len(request.tokens)))
            request.computed = end
        columns = zip(*rows, strict=True)
        self.runner.launch(StepPlan(self.step, tuple(self.released), tuple(admitted), tuple(new_blocks), (), *columns))
        self.released = []
        return [handle for handle, _, _, samples in rows if samples]

    def commit(self, sampling: list[int]) -> None:
        for handle, token in zip(sampling, self.runner.collect().tokens, strict=True):
            self.live[handle].tokens.append(token)

    def run(self, work: Mapping[int, int]) -> None:
        self.commit(self.launch(work))

    def missing(self, handle: int) -> int:
        return len(self.live[handle].tokens) - self.live[handle].computed

    def finish(self, chunk: int = 10**6) -> None:
        while work := {h: min(chunk, self.missing(h)) for h, request in self.live.items() if not request.done}:
            self.run(work)


def prompts(loaded: models.LoadedModel) -> Iterator[list[int]]:
    rng = random.Random(11)
    for length in (1, 3, 8, 17, 40):
        yield [rng.randrange(loaded.config.vocab_size) for _ in range(length)]


KINDS = [
    SamplingParams(temperature=0),
    SamplingParams(temperature=0.9, seed=42),
    SamplingParams(temperature=1.2, top_p=0.95, top_k=60),
    SamplingParams(temperature=0.8, min_p=0.02, seed=7),
    SamplingParams(temperature=0),
]


def fresh(loaded: models.LoadedModel, only: int | None = None, seed: int = 0) -> Driver:
    driver = Driver(loaded, seed)
    for handle, (prompt, sampling) in enumerate(zip(prompts(loaded), KINDS, strict=True)):
        if only in (None, handle):
            driver.add(handle, prompt, sampling)
    return driver


def outputs(driver: Driver) -> dict[int, list[int]]:
    return {handle: request.tokens[request.prompt_len :] for handle, request in driver.live.items()}


@pytest.fixture(scope="module")
def alone(tiny: models.LoadedModel) -> dict[int, list[int]]:
    """Each request by itself, its whole prompt in one step."""
    result: dict[int, list[int]] = {}
    for handle in range(len(KINDS)):
        driver = fresh(tiny, handle)
        driver.finish()
        result |= outputs(driver)
    return result


def test_the_outputs_are_worth_comparing(alone: dict[int, list[int]]) -> None:
    assert all(len(tokens) == OUTPUTS for tokens in alone.values())
    assert len({tuple(tokens) for tokens in alone.values()}) == len(alone)
    assert all(len(set(tokens)) > 4 for tokens in alone.values())


@pytest.mark.parametrize("chunk", [1, 3, 4, 7, 10**6])
def test_batched_and_chunked_is_alone_and_whole(
    tiny: models.LoadedModel, alone: dict[int, list[int]], chunk: int
) -> None:
    driver = fresh(tiny)
    driver.finish(chunk)
    assert outputs(driver) == alone


def test_any_mix_of_steps(tiny: models.LoadedModel, alone: dict[int, list[int]]) -> None:
    """Random subsets in random order, random chunks, and now and then a pre-emption."""
    rng, driver, pre_empted = random.Random(5), fresh(tiny), 0
    while waiting := [h for h, request in driver.live.items() if not request.done]:
        chosen = rng.sample(waiting, rng.randint(1, len(waiting)))
        driver.run({h: rng.randint(1, driver.missing(h)) for h in chosen})
        started = [h for h in waiting if driver.live[h].computed and not driver.live[h].done]
        if started and rng.random() < 0.15:
            driver.pre_empt(rng.choice(started))
            pre_empted += 1
    assert pre_empted > 3
    assert outputs(driver) == alone


def test_asynchronous_by_one_step(tiny: models.LoadedModel, alone: dict[int, list[int]]) -> None:
    """Every step is launched before the tokens of the one before it are collected."""
    driver = fresh(tiny)
    flying = driver.launch({h: driver.missing(h) for h in driver.live})
    for _ in range(OUTPUTS - 1):
        newer = driver.launch(dict.fromkeys(driver.live, 1))
        driver.commit(flying)
        flying = newer
    driver.commit(flying)
    assert outputs(driver) == alone


def test_nothing_is_written_outside_the_blocks_held(tiny: models.LoadedModel) -> None:
    driver = fresh(tiny)
    address = driver.runner.pool_address
    driver.finish(chunk=5)
    held = {block for request in driver.live.values() for block in request.blocks}
    written = driver.storage.tensor.abs().amax((0, 1, 3, 4, 5)).nonzero().flatten().tolist()
    assert set(written) == held
    assert driver.runner.pool_address == address


def test_the_runners_seed_moves_unseeded_requests_only(tiny: models.LoadedModel, alone: dict[int, list[int]]) -> None:
    driver = fresh(tiny, seed=1)
    driver.finish()
    assert [handle for handle, tokens in outputs(driver).items() if tokens != alone[handle]] == [2]
