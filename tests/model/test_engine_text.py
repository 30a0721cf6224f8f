"""Every family through the whole engine: 20 prompts × 64 greedy tokens are those of transformers, in float32."""

from __future__ import annotations

import random

import pytest

from pellucid import LLM
from teacher import assert_same_text


@pytest.mark.parametrize("family", ["llama", "mistral", "qwen2", "qwen3"])
def test_twenty_prompts_of_64_greedy_tokens(family: str, request: pytest.FixtureRequest) -> None:
    oracle = request.getfixturevalue(family)
    rng = random.Random(family)
    prompts = [[rng.randrange(96) for _ in range(rng.randint(1, 90))] for _ in range(20)]
    llm = LLM(str(oracle.folder), num_gpu_blocks_override=400, block_size=8, max_num_batched_tokens=128)
    assert llm.tokenizer is None
    assert_same_text(llm, prompts, lambda ids: oracle.model(ids).logits)
