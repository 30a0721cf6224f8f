"""Cold = warm = chunked = pre-empted = batched = asynchronous, token for token in float32.

The reference is the request alone: prefix cache off, a large pool, no chunking, synchronous.
Cases C09, C17 and C21 of the casebook of paged engines (vllm#16832, #51226, #5543, nano-vllm#211 and others).
"""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import suppress

import pytest

from pellucid import LLM, SamplingParams
from pellucid.errors import MoveRefused
from pellucid.kv.acts import Move, Preempt

Make = Callable[..., LLM]


def prompts(count: int, seed: int, longest: int = 70) -> list[list[int]]:
    """Random token ids, many sharing a prefix with an earlier prompt."""
    rng = random.Random(seed)
    made: list[list[int]] = []
    for _ in range(count):
        prefix = rng.choice(made)[: rng.randint(0, longest)] if made and rng.random() < 0.6 else []
        length = max(len(prefix) + 1, rng.randint(1, longest))
        made.append((prefix + [rng.randrange(256) for _ in range(length)])[:length])
    return made


def alone(make: Make, prompt: list[int], sampling: SamplingParams) -> list[int]:
    llm = make(enable_prefix_caching=False, async_scheduling=False)
    return llm.generate([prompt], sampling)[0].outputs[0].token_ids


def run(
    llm: LLM,
    asked: list[list[int]],
    params: list[SamplingParams],
    batch: int,
    between: Callable[[], None] = lambda: None,
) -> list[list[int]]:
    """At most ``batch`` requests in the engine at once; every invariant is checked at every step.

    ``between`` is called after each step.
    """
    auditor = llm.kv.auditor()
    tokens: dict[str, list[int]] = {}
    waiting = list(enumerate(zip(asked, params, strict=True)))
    live = 0
    while waiting or llm.has_unfinished_requests():
        while waiting and live < batch:
            index, (prompt, sampling) = waiting.pop(0)
            llm.add_request(str(index), prompt, sampling)
            live += 1
        for output in llm.step():
            tokens[output.request_id] = output.outputs[0].token_ids
            live -= output.finished
        between()
        auditor.require()
    return [tokens[str(index)] for index in range(len(asked))]


ASKED = prompts(30, seed=7, longest=40)
GREEDY = SamplingParams(temperature=0, max_tokens=5, ignore_eos=True)


@pytest.fixture(scope="module")
def reference(tiny: object) -> list[list[int]]:
    return [alone(lambda **options: LLM(tiny, num_gpu_blocks_override=200, **options), p, GREEDY) for p in ASKED]


@pytest.mark.parametrize(
    ("block_size", "chunk", "batch", "asynchronous"),
    [
        (1, 8, 5, False),
        (1, 1000, 1, True),
        (4, 3, 5, True),
        (4, 8, 1, False),
        (4, 1000, 5, False),
        (16, 3, 1, False),
        (16, 8, 5, True),
        (16, 1000, 5, True),
    ],
)
def test_cold_warm_chunked_and_batched_agree(
    engine: Make, reference: list[list[int]], block_size: int, chunk: int, batch: int, asynchronous: bool
) -> None:
    llm = engine(
        block_size=block_size,
        kv_cache_tokens=1600,
        max_num_batched_tokens=chunk,
        async_scheduling=asynchronous,
        verify_prefix_hits=True,
    )
    cold = run(llm, ASKED, [GREEDY] * len(ASKED), batch)
    assert cold == reference
    hit = llm.kv.snapshot().hits["first"].hit
    assert run(llm, ASKED, [GREEDY] * len(ASKED), batch) == reference
    assert llm.kv.snapshot().hits["first"].hit > hit


def test_one_token_at_a_time_agrees(engine: Make, reference: list[list[int]]) -> None:
    llm = engine(max_num_batched_tokens=1, block_size=4)
    assert run(llm, ASKED[:10], [GREEDY] * 10, 3) == reference[:10]


@pytest.mark.parametrize("asynchronous", [False, True])
@pytest.mark.parametrize("caching", [False, True])
@pytest.mark.parametrize("chunk", [4, 64])
@pytest.mark.parametrize("policy", ["fcfs", "priority"])
@pytest.mark.parametrize("temperature", [0, 0.8])
def test_a_preempted_request_resumes_with_the_same_output(
    engine: Make, asynchronous: bool, caching: bool, chunk: int, policy: str, temperature: float
) -> None:
    asked = [[i, i + 1, i + 2, i + 3] * 2 for i in (10, 20, 30)]
    params = [SamplingParams(temperature=temperature, seed=i, max_tokens=16, ignore_eos=True) for i in range(3)]
    llm = engine(
        block_size=4,
        num_gpu_blocks_override=11,
        max_model_len=40,
        enable_prefix_caching=caching,
        max_num_batched_tokens=chunk,
        scheduling_policy=policy,
        async_scheduling=asynchronous,
        verify_prefix_hits=True,
    )
    tokens = run(llm, asked, params, batch=3)
    assert sum(isinstance(act, Preempt) for act in llm.kv.journal) > 0
    assert tokens == [alone(engine, prompt, sampling) for prompt, sampling in zip(asked, params, strict=True)]
    assert llm.kv.snapshot().pool.reclaimable == 10


@pytest.mark.parametrize("asynchronous", [False, True])
@pytest.mark.parametrize(("block_size", "policy"), [(1, "vllm-0.24"), (4, "free-first"), (16, "vllm-0.23")])
def test_wherever_blocks_are_and_go_the_output_is_the_same(
    engine: Make, reference: list[list[int]], block_size: int, policy: str, asynchronous: bool
) -> None:
    """Ids are shuffled, and between any two steps up to six live blocks move, one after the other."""
    llm = engine(
        block_size=block_size,
        kv_cache_tokens=480,
        shuffle_blocks=5,
        reuse_policy=policy,
        max_num_batched_tokens=64,
        async_scheduling=asynchronous,
        verify_prefix_hits=True,
    )
    rng = random.Random(3)

    def move() -> None:
        for _ in range(rng.randint(0, 6)):
            pool = llm.kv.snapshot().pool
            held = [block for block, owners in enumerate(pool.owners) if owners]
            if held and pool.reuse_order:
                with suppress(MoveRefused):
                    llm.move_block(rng.choice(held), rng.choice(pool.reuse_order))

    assert run(llm, ASKED, [GREEDY] * len(ASKED), 5, move) == reference
    moves = [act for act in llm.kv.journal if isinstance(act, Move)]
    assert len(moves) > 20
    assert any(len(act.requests) > 1 for act in moves)
    assert any(act.fence for act in moves) == asynchronous


def test_a_seeded_request_does_not_depend_on_its_neighbours(engine: Make) -> None:
    mine, mine_params = [5, 6, 7, 8, 9], SamplingParams(temperature=0.8, seed=42, max_tokens=16, ignore_eos=True)
    expected = alone(engine, mine, mine_params)
    unseeded = ([1, 2, 3], SamplingParams(temperature=1.0, max_tokens=20, ignore_eos=True))
    seeded = ([9, 9], SamplingParams(temperature=1.3, seed=42, max_tokens=20, ignore_eos=True))
    brief = ([4] * 30, SamplingParams(temperature=0, max_tokens=2, ignore_eos=True))
    me = (mine, mine_params)
    for batch in ([me], [me, unseeded], [unseeded, me], [seeded, me, brief], [brief, unseeded, seeded, me], [me, me]):
        for _ in range(3):
            llm = engine(async_scheduling=True)
            for round in ("cold", "warm"):
                outputs = run(llm, [prompt for prompt, _ in batch], [params for _, params in batch], batch=9)
                assert outputs[batch.index(me)] == expected, (round, batch)


def test_unseeded_requests_differ_and_the_engines_seed_repeats_them(engine: Make) -> None:
    params = SamplingParams(temperature=1.0, max_tokens=12, ignore_eos=True)
    first, second = (engine(seed=1).generate([[1, 2], [1, 2]], params) for _ in range(2))
    tokens = [[output.outputs[0].token_ids for output in outputs] for outputs in (first, second)]
    assert tokens[0] == tokens[1]
    assert tokens[0][0] != tokens[0][1]
