"""A configuration that cannot be run is refused by name."""

from __future__ import annotations

import json

import pytest

from pellucid.errors import ModelError
from pellucid.model import find, load

LLAMA = {
    "architectures": ["LlamaForCausalLM"],
    "vocab_size": 96,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 8192,
    "rms_norm_eps": 1e-5,
    "eos_token_id": 7,
}


def write(folder, generation=None, **changes):
    raw = {key: value for key, value in (LLAMA | changes).items() if value != "absent"}
    (folder / "config.json").write_text(json.dumps(raw))
    if generation is not None:
        (folder / "generation_config.json").write_text(json.dumps(generation))
    return str(folder)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        (
            {"architectures": ["MixtralForCausalLM"]},
            "'MixtralForCausalLM' is not supported; supported: LlamaForCausalLM,",
        ),
        ({"architectures": "absent"}, "(none given) is not supported"),
        ({"hidden_size": "absent"}, "has no 'hidden_size'"),
        ({"num_hidden_layers": "two"}, "'num_hidden_layers' must be a number, not 'two'"),
        ({"num_hidden_layers": 2.5}, "'num_hidden_layers' must be a whole number, not 2.5"),
        ({"num_hidden_layers": 0}, "num_layers must be at least 1, not 0"),
        ({"num_attention_heads": 0}, "num_heads must be at least 1, not 0"),
        ({"num_key_value_heads": 3}, "4 attention heads cannot be shared out among 3 KV heads"),
        ({"head_dim": 7}, "head_dim must be even for rotary embedding, not 7"),
        ({"rms_norm_eps": -1.0}, "RMS epsilon (-1.0) must be more than 0"),
        ({"eos_token_id": "</s>"}, "'eos_token_id' must be a token id or a list of them, not '</s>'"),
        ({"hidden_act": "gelu"}, "the activation 'gelu' is not supported"),
        ({"attention_bias": True}, "attention_bias=true is not supported for LlamaForCausalLM"),
        ({"quantization_config": {"quant_method": "awq"}}, "quantised with 'awq' are not supported"),
        ({"rope_scaling": {"type": "yarn", "factor": 2.0}}, "rope scaling 'yarn' is not supported"),
        ({"partial_rotary_factor": 0.5}, "rotary embedding over only 50% of each head"),
        ({"rope_scaling": {"rope_type": "linear"}}, "has no 'factor'"),
        ({"architectures": ["MistralForCausalLM"]}, "a sliding window of 4096 tokens is not supported"),
        ({"architectures": ["MistralForCausalLM"], "sliding_window": 64}, "a sliding window of 64 tokens"),
        (
            {"architectures": ["Qwen2ForCausalLM"], "use_sliding_window": True, "max_window_layers": 1},
            "a sliding window of 4096 tokens",
        ),
    ],
)
def test_refused(tmp_path, changes, said):
    spec = write(tmp_path, **changes)
    with pytest.raises(ModelError) as caught:
        find(spec)
    assert said in str(caught.value)
    assert str(caught.value).startswith(str(tmp_path))


@pytest.mark.parametrize(
    "changes",
    [
        {"sliding_window": 64},  # Llama has no such thing
        {"architectures": ["MistralForCausalLM"], "sliding_window": None},
        {"architectures": ["MistralForCausalLM"], "sliding_window": 8192},  # never shorter than the context
        {"architectures": ["Qwen2ForCausalLM"], "sliding_window": 64},  # not asked for
        {"architectures": ["Qwen2ForCausalLM"], "sliding_window": 64, "use_sliding_window": True},  # from layer 28 on
    ],
)
def test_windows_that_are_never_active(tmp_path, changes):
    assert find(write(tmp_path, **changes)).config.num_layers == 2


def test_older_spellings_and_defaults(tmp_path):
    config = find(
        write(
            tmp_path,
            num_key_value_heads="absent",
            rope_theta=123.0,
            rope_scaling={"type": "linear", "factor": 2.0},
        )
    ).config
    assert (config.num_kv_heads, config.head_dim, config.rope_theta) == (4, 8, 123.0)
    assert (config.rope_scaling.kind, config.rope_scaling.factor) == ("linear", 2.0)


@pytest.mark.parametrize(
    ("generation", "expected"), [(None, (7,)), ({"eos_token_id": None}, (7,)), ({"eos_token_id": [9, 7]}, (9, 7))]
)
def test_end_tokens_come_from_the_generation_config_first(tmp_path, generation, expected):
    assert find(write(tmp_path, generation)).config.eos_token_ids == expected


def test_unreadable_json(tmp_path):
    (tmp_path / "config.json").write_text('{"hidden_size": 3,')
    with pytest.raises(ModelError, match=r"config.json cannot be read as JSON .*line 1"):
        find(str(tmp_path))
    (tmp_path / "config.json").write_text("[1]")
    with pytest.raises(ModelError, match="holds a JSON list, not an object"):
        find(str(tmp_path))


def test_dummy_weights_need_only_a_config(tmp_path, greedy):
    spec = write(tmp_path, architectures=["Qwen2ForCausalLM"])
    first, again, other = (load(spec, load_format="dummy", seed=seed) for seed in (1, 1, 2))
    assert first.tokenizer is None
    tokens = [greedy(loaded.model, [1, 2, 3], 12)[0] for loaded in (first, again, other)]
    assert tokens[0] == tokens[1] != tokens[2]
