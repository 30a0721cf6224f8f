"""The model that needs nothing is the same everywhere, and varied enough to test an engine with."""

from __future__ import annotations

import dataclasses
import hashlib
import random

import pytest
import torch

from pellucid.model import ByteTokenizer, Model, find, load
from pellucid.model.llama import tensor_shapes
from pellucid.model.weights import RandomWeights


def test_weights_are_the_same_on_every_machine():
    checkpoint, digest = find("tiny"), hashlib.sha256()
    for name, shape in tensor_shapes(checkpoint.config).items():
        out = torch.empty(shape)
        checkpoint.weights().copy_to(name, out)
        digest.update(out.numpy().tobytes())
    assert digest.hexdigest() == "708d1d67f51ce745da5c8d311daa635ea421fe34c4f265af70db2396465d175c"


def test_seed_changes_the_weights(logits):
    first, again, other = (logits(load("tiny", seed=seed).model, [1, 2, 3]) for seed in (0, 0, 1))
    assert torch.equal(first, again)
    assert not torch.allclose(first, other)


@pytest.mark.parametrize("layers", [1, 2, 4])
def test_a_shallow_model_is_the_first_two_layers_between_the_same_ends(logits, layers):
    tiny = load("tiny").model
    configs = [dataclasses.replace(tiny.config, num_layers=number) for number in (layers, min(layers, 2))]
    whole, alone = (Model(c, RandomWeights(tensor_shapes(c), 0), tiny.ops, tiny.device) for c in configs)
    before, shallow = logits(whole, [1, 2, 3]), logits(whole.shallow(), [1, 2, 3])
    assert torch.equal(shallow, logits(alone, [1, 2, 3]))
    assert torch.allclose(shallow, before) == (layers <= 2)
    assert torch.equal(logits(whole, [1, 2, 3]), before)


def test_greedy_output_is_varied_and_clear_cut(greedy):
    model, draw = load("tiny").model, random.Random(11)
    distinct, margins = [], []
    for _ in range(20):
        prompt = [draw.randrange(256) for _ in range(draw.randint(1, 60))]
        tokens, lead = greedy(model, prompt, 32)
        distinct.append(len(set(tokens)))
        margins += lead
    assert sum(distinct) / len(distinct) >= 10
    assert sum(margin < 1e-3 for margin in margins) <= len(margins) // 100


def test_output_depends_on_the_whole_prompt(greedy):
    """So that a wrong block anywhere in a context shows in the tokens."""
    model, draw = load("tiny").model, random.Random(12)
    prompt = [draw.randrange(256) for _ in range(48)]
    tokens = greedy(model, prompt, 32)[0]
    for position in range(0, 48, 6):
        other = [*prompt[:position], (prompt[position] + 1) % 256, *prompt[position + 1 :]]
        assert greedy(model, other, 32)[0] != tokens


def test_byte_tokenizer():
    tokenizer = ByteTokenizer()
    for text in ("", "plain", "안녕 🙂"):
        assert tokenizer.encode(text) == list(text.encode())
        assert tokenizer.decode(tokenizer.encode(text)) == text
    assert tokenizer.decode([256, 104, 105, 257, 258, 259]) == "hi"
    assert tokenizer.decode([256, 104, 105, 257], skip_special_tokens=False) == "<bos>hi<eos>"
    assert tokenizer.decode([0xEC, 0x95]) == "\ufffd"
    messages = [{"role": "system", "content": "be brief"}, {"role": "user", "content": "hi"}]
    assert tokenizer.apply_chat_template(messages) == "system: be brief\nuser: hi\nassistant:"
    assert (tokenizer.vocab_size, tokenizer.bos_token_id, tokenizer.eos_token_id) == (260, 256, 257)
