"""Right by an independent implementation: transformers on the weights of smollm2-135m, in float32."""

from __future__ import annotations

import random

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from pellucid import LLM
from pellucid.model import LoadedModel, find
from pellucid.model.llama import tensor_shapes
from teacher import assert_same_text

pytestmark = pytest.mark.model

TEXTS = (
    "The capital of France is",
    "안녕하세요, 오늘 날씨는",
    "def fibonacci(n):",
    "Once upon a time, in a land far away,",
    "1 + 1 = 2, 2 + 2 =",
    "Photosynthesis is the process by which",
    "<|im_start|>user\nName three colours.<|im_end|>\n<|im_start|>assistant\n",
    "The quick brown fox",
    "In 1969, humans first",
    "Water boils at",
    "To be, or not to be,",
    "SELECT name FROM users WHERE",
)


@pytest.fixture(scope="module")
def oracle(smollm2: LoadedModel) -> LlamaForCausalLM:
    """transformers' Llama with exactly our weights."""
    ours = smollm2.config
    config = LlamaConfig(
        vocab_size=ours.vocab_size,
        hidden_size=ours.hidden_size,
        intermediate_size=ours.intermediate_size,
        num_hidden_layers=ours.num_layers,
        num_attention_heads=ours.num_heads,
        num_key_value_heads=ours.num_kv_heads,
        max_position_embeddings=ours.max_position,
        rms_norm_eps=ours.rms_eps,
        rope_theta=ours.rope_theta,
        tie_word_embeddings=True,
        attn_implementation="eager",
    )
    model = LlamaForCausalLM(config).eval()
    missing = model.load_state_dict(huggingface_names(smollm2), strict=False).missing_keys
    assert missing == ["lm_head.weight"]
    model.tie_weights()
    return model


def huggingface_names(loaded: LoadedModel) -> dict[str, torch.Tensor]:
    weights = find("smollm2-135m").weights()
    named = {name: torch.empty(shape) for name, shape in tensor_shapes(loaded.config).items()}
    for name, tensor in named.items():
        weights.copy_to(name, tensor)
    return named


def prompts(loaded: LoadedModel) -> list[list[int]]:
    assert loaded.tokenizer is not None
    rng = random.Random(20261129)
    texts = [loaded.tokenizer.encode(text) for text in TEXTS]
    noise = [[rng.randrange(loaded.config.vocab_size) for _ in range(rng.randint(1, 60))] for _ in range(8)]
    return texts + noise


def test_twenty_prompts_of_64_greedy_tokens(smollm2: LoadedModel, oracle: LlamaForCausalLM) -> None:
    asked = prompts(smollm2)
    assert len(asked) == 20
    assert_same_text(LLM(smollm2, num_gpu_blocks_override=400), asked, lambda ids: oracle(ids).logits)
