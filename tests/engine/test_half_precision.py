"""In bfloat16 too: alone = batched = chunked = pre-empted, token for token, with compiled kernels.

Rounding decides between tokens often in bfloat16, so this holds only if no number depends on the batch it is in.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Any, NamedTuple

import pytest
import torch
from test_equality import prompts, run

from pellucid import LLM, SamplingParams
from pellucid.kv.acts import Preempt
from pellucid.model import LoadedModel, load
from pellucid.native import native
from pellucid.plan import StepPlan

pytestmark = pytest.mark.skipif(not native().multiplies_bfloat16, reason="no compiled kernels for bfloat16 here")

# What is done to the requests: (options, requests at once).
WAYS: dict[str, tuple[dict[str, Any], int]] = {
    "batched": ({"num_gpu_blocks_override": 400, "async_scheduling": True}, 9),
    "chunked": ({"num_gpu_blocks_override": 400, "max_num_batched_tokens": 5}, 4),
    "one token at a time": ({"num_gpu_blocks_override": 400, "max_num_batched_tokens": 1, "block_size": 1}, 3),
    "large blocks": ({"num_gpu_blocks_override": 20, "block_size": 256, "max_num_batched_tokens": 100}, 7),
    "pre-empted": ({"num_gpu_blocks_override": 26, "max_num_batched_tokens": 48, "async_scheduling": True}, 9),
    "without a cache": ({"num_gpu_blocks_override": 26, "enable_prefix_caching": False}, 9),
}


@pytest.fixture(scope="module")
def tiny_half() -> LoadedModel:
    return load("tiny", dtype="bfloat16", kernels="compiled")


def engine(loaded: LoadedModel, **options: Any) -> LLM:
    return LLM(loaded, **({"block_size": 4} | options))


class Asked(NamedTuple):
    """Requests, and what each is answered alone: without a cache, uncut, in a large pool."""

    prompts: list[list[int]]
    params: list[SamplingParams]
    answers: list[list[int]]


def ask(loaded: LoadedModel, prompts: list[list[int]], **sampling: Any) -> Asked:
    params = [SamplingParams(seed=index, ignore_eos=True, **sampling) for index in range(len(prompts))]
    llm = engine(loaded, num_gpu_blocks_override=400, enable_prefix_caching=False)
    return Asked(prompts, params, run(llm, prompts, params, batch=1))


def check(loaded: LoadedModel, asked: Asked, way: str) -> None:
    options, batch = WAYS[way]
    llm = engine(loaded, **options)
    assert run(llm, asked.prompts, asked.params, batch) == asked.answers
    if way == "pre-empted":
        assert sum(isinstance(act, Preempt) for act in llm.kv.journal) > 0


@pytest.fixture(scope="module", params=[0, 0.9], ids=["greedy", "sampled"])
def asked(request: pytest.FixtureRequest, tiny_half: LoadedModel) -> Asked:
    return ask(tiny_half, prompts(18, seed=9, longest=60), temperature=request.param, max_tokens=12)


@pytest.mark.parametrize("way", WAYS)
def test_the_same_tokens(tiny_half: LoadedModel, asked: Asked, way: str) -> None:
    check(tiny_half, asked, way)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_the_same_logits(dtype: str) -> None:
    """Not the tokens only: every logit of a request has the same bits alone and in company.

    In float32 the bits say more: torch's own products fail this.
    """
    loaded = load("tiny", dtype=dtype, kernels="compiled")
    seen: list[dict[int, list[torch.Tensor]]] = []
    asked = prompts(6, seed=4, longest=50)
    for batch, chunk in ((1, 1000), (6, 1000), (6, 7)):
        llm = engine(loaded, num_gpu_blocks_override=200, max_num_batched_tokens=chunk, enable_prefix_caching=False)
        seen.append(record_logits(llm))
        run(llm, asked, [SamplingParams(temperature=0, max_tokens=6, ignore_eos=True)] * 6, batch)
    for other in seen[1:]:
        assert other.keys() == seen[0].keys()
        for handle, rows in seen[0].items():
            assert len(rows) == 6
            assert all(torch.equal(*pair) for pair in zip(rows, other[handle], strict=True))
    assert len({tuple(rows[0].tolist()) for rows in seen[0].values()}) == 6


def record_logits(llm: LLM) -> dict[int, list[torch.Tensor]]:
    """Filled in while ``llm`` runs: the logits of each request (by its handle, in order of arrival), token by token."""
    seen: dict[int, list[torch.Tensor]] = defaultdict(list)

    def keep(plan: StepPlan, logits: torch.Tensor) -> None:
        sampling = [handle for handle, samples in zip(plan.handles, plan.samples, strict=True) if samples]
        for handle, row in zip(sampling, logits, strict=True):
            seen[handle].append(row.clone())

    llm._core.executor._on_logits = keep  # type: ignore[attr-defined]
    return seen


@pytest.mark.model
@pytest.mark.parametrize("quantization", [None, "gguf"])
def test_smollm2(quantization: str | None) -> None:
    loaded = load("smollm2-135m", dtype="bfloat16", kernels="compiled", quantization=quantization)
    assert loaded.tokenizer is not None
    texts = [
        "The capital of France is",
        "def fibonacci(n):\n",
        "Once upon a time, in a village by the sea,",
        "1, 1, 2,",
    ]
    tokens = [loaded.tokenizer.encode(text * (index + 1)) for index, text in enumerate(texts)]
    asked = ask(loaded, tokens, temperature=0, max_tokens=12)
    for way in ("chunked", "pre-empted"):
        check(loaded, asked, way)
