"""The numbers are those of transformers, for every architecture of the registry."""

from __future__ import annotations

import random

import pytest
import torch

from pellucid.model import load

ALL = ["llama", "mistral", "qwen2", "qwen3"]


def prompts(count: int, vocab: int) -> list[list[int]]:
    draw = random.Random(7)
    return [[draw.randrange(vocab) for _ in range(draw.randint(1, 70))] for _ in range(count)]


@pytest.mark.parametrize("name", ALL)
def test_logits_match_transformers(name, request, logits):
    oracle = request.getfixturevalue(name)
    model = load(str(oracle.folder)).model
    for ids in prompts(6, model.config.vocab_size):
        with torch.inference_mode():
            expected = oracle.model(torch.tensor([ids])).logits[0]
        ours = logits(model, ids)
        assert ours.dtype == torch.float32
        assert expected.std() > 0.5  # flat logits would agree whatever the model
        torch.testing.assert_close(ours, expected, rtol=0, atol=1e-4)


@pytest.mark.parametrize("name", ALL)
def test_greedy_tokens_match_transformers(name, request, greedy):
    oracle = request.getfixturevalue(name)
    model = load(str(oracle.folder)).model
    for ids in prompts(3, model.config.vocab_size):
        expected = oracle.model.generate(
            torch.tensor([ids]), max_new_tokens=24, min_new_tokens=24, do_sample=False, eos_token_id=None
        )[0].tolist()
        assert greedy(model, ids, 24)[0] == expected[len(ids) :]


def test_config_says_what_sets_architectures_apart(llama, mistral, qwen2, qwen3):
    llama, mistral, qwen2, qwen3 = (load(str(oracle.folder)).config for oracle in (llama, mistral, qwen2, qwen3))
    assert (llama.num_heads, llama.head_dim, llama.rope_scaling.kind) == (8, 4, "llama3")
    assert (mistral.head_dim, mistral.rope_scaling.factor) == (16, 4.0)
    assert (qwen2.qkv_bias, qwen2.qk_norm, qwen2.tie_embeddings) == (True, False, True)
    assert (qwen3.qkv_bias, qwen3.qk_norm, qwen3.tie_embeddings) == (False, True, False)


@pytest.mark.parametrize(("name", "dtype"), [("bfloat16", torch.bfloat16), ("half", torch.float16)])
def test_half_precision(qwen3, logits, name, dtype):
    ids = prompts(1, 96)[0]
    model, exact = load(str(qwen3.folder), dtype=name).model, load(str(qwen3.folder)).model
    assert model.dtype == dtype
    assert model.weight_bytes * 2 == exact.weight_bytes
    error = logits(model, ids) - logits(exact, ids)
    assert 0 < error.std() < 0.05 * logits(exact, ids).std()


def test_weights_outlive_their_files(make_oracle, logits):
    oracle = make_oracle("LlamaConfig", seed=5)
    model = load(str(oracle.folder)).model
    before = logits(model, [1, 2, 3])
    for path in oracle.folder.glob("*.safetensors"):
        path.write_bytes(bytes(path.stat().st_size))  # the same file, overwritten in place
    assert torch.equal(logits(model, [1, 2, 3]), before)


def test_weight_bytes_count_a_tied_matrix_once(qwen2, qwen3):
    for oracle in (qwen2, qwen3):
        expected = sum(parameter.nbytes for parameter in oracle.model.parameters())
        assert load(str(oracle.folder)).model.weight_bytes == expected
