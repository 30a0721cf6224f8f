"""A model as a Hugging Face folder that any engine can load: the weights that Pellucid takes from its source.

A GGUF file's are unpacked; all are rounded to one dtype, under Hugging Face names, in one safetensors file beside a
config.json and the tokenizer, if the source has one of the usual kind.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file

from pellucid.errors import ModelError
from pellucid.model.load import Checkpoint
from pellucid.model.smollm2 import cache_folder
from pellucid.model.tokenizer import FastTokenizer

FORMAT = "with its tokenizer"
"""Told by the folder's name: folders of an earlier format are not used."""


def model_folder(checkpoint: Checkpoint, dtype: torch.dtype) -> Path:
    """The folder with this model's weights as ``dtype``, made if it is not there yet; a folder stays as it is.

    It stands in Pellucid's cache folder and is used again as long as the source is the same file.
    Processes that make it at once do not disturb each other: each renames a whole folder into place.
    Raises `ModelError` for an architecture or a rotary scaling that is not plain Llama's.
    """
    source = Path(checkpoint.source)
    if source.is_dir():
        return source
    config = config_json(checkpoint, dtype)
    changed = source.stat().st_mtime_ns if source.exists() else 0
    key = hashlib.sha256(f"{source.absolute()} {changed} {config} {FORMAT}".encode()).hexdigest()[:12]
    folder = cache_folder() / "folders" / f"{checkpoint.name}-{config['torch_dtype']}-{key}"
    if not folder.exists():
        folder.parent.mkdir(parents=True, exist_ok=True)
        scratch = Path(tempfile.mkdtemp(prefix=".making-", dir=folder.parent))
        weights = checkpoint.weights()
        tensors = {name: torch.empty(shape, dtype=dtype) for name, shape in weights.shapes.items()}
        for name, tensor in tensors.items():
            weights.copy_to(name, tensor)
        save_file(tensors, scratch / "model.safetensors", metadata={"format": "pt"})
        (scratch / "config.json").write_text(json.dumps(config, indent=2))
        if isinstance(tokenizer := checkpoint.tokenizer(), FastTokenizer):
            tokenizer.save(scratch)
        try:
            os.replace(scratch, folder)
        except OSError:  # another process was first
            shutil.rmtree(scratch)
    return folder


def config_json(checkpoint: Checkpoint, dtype: torch.dtype) -> dict[str, Any]:
    """config.json of a plain Llama, under transformers' names."""
    config = checkpoint.config
    if config.architecture != "LlamaForCausalLM" or config.rope_scaling:
        raise ModelError(f"{checkpoint.source} is not a plain Llama; give the model as a Hugging Face folder instead.")
    return {
        "architectures": [config.architecture],
        "model_type": "llama",
        "torch_dtype": str(dtype).removeprefix("torch."),
        "vocab_size": config.vocab_size,
        "hidden_size": config.hidden_size,
        "intermediate_size": config.intermediate_size,
        "num_hidden_layers": config.num_layers,
        "num_attention_heads": config.num_heads,
        "num_key_value_heads": config.num_kv_heads,
        "head_dim": config.head_dim,
        "hidden_act": "silu",
        "max_position_embeddings": config.max_position,
        "rms_norm_eps": config.rms_eps,
        "rope_theta": config.rope_theta,
        "tie_word_embeddings": config.tie_embeddings,
        "attention_bias": config.qkv_bias,
        "mlp_bias": False,
        "bos_token_id": config.bos_token_id,
        "eos_token_id": list(config.eos_token_ids),
    }
