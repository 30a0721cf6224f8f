"""What the model tests share: small random checkpoints made by transformers, and our models run on their own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch

from pellucid.attention import KVStorage, ReferenceAttention, StepLayout
from pellucid.model import Model

BLOCK = 16


@dataclass
class Oracle:
    """A checkpoint folder and the transformers model that was saved there."""

    folder: Path
    model: Any


@pytest.fixture(scope="session")
def make_oracle(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Oracle]:
    """Make a random transformers model of a config class, its norms and biases random too, and save it."""

    def make(config_class: str, *, seed: int, shard: str = "5GB", **options: Any) -> Oracle:
        import transformers

        sizes = {
            "vocab_size": 96,
            "hidden_size": 32,
            "intermediate_size": 64,
            "num_hidden_layers": 3,
            "num_attention_heads": 4,
            "num_key_value_heads": 2,
            "max_position_embeddings": 256,
            "pad_token_id": None,
        }
        config = getattr(transformers, config_class)(**(sizes | options))
        model = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.float32).eval()
        generator = torch.Generator().manual_seed(seed)
        for name, weight in model.named_parameters():
            noise = torch.randn(weight.shape, generator=generator)
            weight.data = 1 + noise / 4 if "norm" in name else noise / 4
        model.tie_weights()
        folder = tmp_path_factory.mktemp(config_class)
        model.save_pretrained(folder, max_shard_size=shard)
        return Oracle(folder, model)

    return make


@pytest.fixture(scope="session")
def llama(make_oracle: Callable[..., Oracle]) -> Oracle:
    """Sharded, its own output matrix, Llama 3.1's rotary scaling."""
    scaling = {
        "rope_type": "llama3",
        "rope_theta": 5000.0,
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 64,
    }
    return make_oracle("LlamaConfig", seed=1, shard="20KB", rope_parameters=scaling, num_attention_heads=8)


@pytest.fixture(scope="session")
def mistral(make_oracle: Callable[..., Oracle]) -> Oracle:
    """Heads wider than hidden_size / heads, and linear rotary scaling."""
    scaling = {"rope_type": "linear", "rope_theta": 10000.0, "factor": 4.0}
    return make_oracle("MistralConfig", seed=2, head_dim=16, sliding_window=None, rope_parameters=scaling)


@pytest.fixture(scope="session")
def qwen2(make_oracle: Callable[..., Oracle]) -> Oracle:
    """Biases on q, k and v; the embedding is the output matrix."""
    return make_oracle("Qwen2Config", seed=3, tie_word_embeddings=True)


@pytest.fixture(scope="session")
def qwen3(make_oracle: Callable[..., Oracle]) -> Oracle:
    """Norms on q and k."""
    return make_oracle("Qwen3Config", seed=4, head_dim=16, tie_word_embeddings=False)


class Alone:
    """One request on a model of its own, through blocks that are not in order."""

    def __init__(self, model: Model, longest: int) -> None:
        config, blocks = model.config, -(-longest // BLOCK)
        self._model = model
        self._kv = KVStorage(
            config.num_layers, blocks + 1, BLOCK, config.num_kv_heads, config.head_dim, model.dtype, model.device
        )
        self._table = torch.arange(blocks, 0, -1, dtype=torch.int32)
        self._computed = 0

    def logits(self, ids: Sequence[int]) -> torch.Tensor:
        """Logits [len(ids), vocab] of tokens that follow those of the calls before."""
        positions = torch.arange(self._computed, self._computed + len(ids))
        self._computed += len(ids)
        layout = StepLayout(
            query_start=torch.tensor([0, len(ids)], dtype=torch.int32),
            context_lens=torch.tensor([self._computed], dtype=torch.int32),
            block_tables=self._table[None],
            slots=self._table[positions // BLOCK].long() * BLOCK + positions % BLOCK,
            max_query=len(ids),
        )
        hidden = self._model.forward(torch.tensor(ids), positions, self._kv, layout, ReferenceAttention())
        return self._model.logits(hidden)


@pytest.fixture(scope="session")
def logits() -> Callable[[Model, Sequence[int]], torch.Tensor]:
    """Logits of a whole prompt at once: [len(ids), vocab]."""
    return lambda model, ids: Alone(model, len(ids)).logits(ids)


@pytest.fixture(scope="session")
def greedy() -> Callable[[Model, Sequence[int], int], tuple[list[int], list[float]]]:
    """The ``count`` tokens that follow a prompt, one step each, and how far each led the second best."""

    def run(model: Model, prompt: Sequence[int], count: int) -> tuple[list[int], list[float]]:
        request, ids, margins = Alone(model, len(prompt) + count), list(prompt), []
        todo = ids
        for _ in range(count):
            best = request.logits(todo)[-1].topk(2)
            margins.append(float(best.values[0] - best.values[1]))
            todo = [int(best.indices[0])]
            ids = ids + todo
        return ids[len(prompt) :], margins

    return run
