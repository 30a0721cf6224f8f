"""A model folder with all that vLLM's core asks of one: the shape of a tiny Llama, its tokenizer, and no weights."""

from __future__ import annotations

import json
from pathlib import Path

from attach.stub.tokens import VOCABULARY


def write_model(folder: Path) -> Path:
    """Writes config.json and a tokenizer whose words are ``t3 t4 t5 …``, one token each, into ``folder``."""
    folder.mkdir(parents=True, exist_ok=True)
    files = {"config.json": config(), "tokenizer.json": tokenizer(), "tokenizer_config.json": tokenizer_config()}
    for name, content in files.items():
        (folder / name).write_text(json.dumps(content))
    return folder


def config() -> dict[str, object]:
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "vocab_size": VOCABULARY,
        "hidden_size": 64,
        "intermediate_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "num_key_value_heads": 2,
        "max_position_embeddings": 8192,
        "rms_norm_eps": 1e-5,
        "rope_theta": 10000.0,
        "hidden_act": "silu",
        "tie_word_embeddings": True,
        "bos_token_id": 1,
        "eos_token_id": 2,
        "torch_dtype": "float32",
    }


def tokenizer() -> dict[str, object]:
    special = ["<unk>", "<s>", "</s>"]
    words = special + [f"t{token}" for token in range(len(special), VOCABULARY)]
    return {
        "version": "1.0",
        "added_tokens": [
            {"id": token, "content": word, "special": True, "single_word": False, "lstrip": False, "rstrip": False}
            | {"normalized": False}
            for token, word in enumerate(special)
        ],
        "pre_tokenizer": {"type": "WhitespaceSplit"},
        "model": {
            "type": "WordLevel",
            "vocab": {word: token for token, word in enumerate(words)},
            "unk_token": "<unk>",
        },
    }


def tokenizer_config() -> dict[str, object]:
    return {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "unk_token": "<unk>",
        "bos_token": "<s>",
        "eos_token": "</s>",
        "chat_template": "{% for message in messages %}{{ message['content'] }} {% endfor %}",
    }
