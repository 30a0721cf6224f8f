"""All layers in one call of the kernels: the same bits as layer by layer, in every architecture."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from gguf import GGMLQuantizationType as Type
from gguf_file import write

from pellucid.attention import AttentionBackend, CompiledAttention, KVStorage, ReferenceAttention, StepLayout
from pellucid.model import Model, load
from pellucid.native import native

pytestmark = pytest.mark.skipif(not native().multiplies_bfloat16, reason="the kernels are not here, or not all of them")

BLOCK, BLOCKS = 4, 60
ROWS = [(1, 40), (9, 9), (5, 30), (1, 1)]  # (tokens computed, context after them)
MODELS = ("llama", "mistral", "qwen2", "qwen3", "odd_sizes")
DTYPES = pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["float32", "bfloat16"])


class LayerByLayer(CompiledAttention):
    """The same attention under a name that no decoder knows, so the model calls it once a layer."""

    name = "layer by layer"


@pytest.fixture(scope="session")
def odd_sizes(make_oracle: Callable[..., Any]) -> Any:
    """An inner size and a vocabulary that are no multiples of 32, and its own output matrix."""
    return make_oracle("LlamaConfig", seed=5, intermediate_size=70, vocab_size=97, tie_word_embeddings=False)


def step(
    model: Model, attention: AttentionBackend, wanted: torch.Tensor | None = None
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Hidden states, logits and the pool after one mixed step on a pool of random K and V."""
    config, draw = model.config, torch.Generator().manual_seed(11)
    kv = KVStorage(config.num_layers, BLOCKS, BLOCK, config.num_kv_heads, config.head_dim, model.dtype)
    kv.tensor.copy_(torch.randn(kv.tensor.shape, generator=draw))
    ids = (torch.randperm(BLOCKS - 1, generator=draw) + 1).int()
    tables = torch.stack(ids[: len(ROWS) * 12].split(12))
    positions = [torch.arange(context - count, context) for count, context in ROWS]
    layout = StepLayout(
        query_start=torch.tensor([0, *(count for count, _ in ROWS)]).cumsum(0).int(),
        context_lens=torch.tensor([context for _, context in ROWS], dtype=torch.int32),
        block_tables=tables,
        slots=torch.cat([tables[r][at // BLOCK].long() * BLOCK + at % BLOCK for r, at in enumerate(positions)]),
        max_query=max(count for count, _ in ROWS),
    )
    tokens = torch.randint(config.vocab_size, (len(layout.slots),), generator=draw)
    hidden = model.forward(tokens, torch.cat(positions), kv, layout, attention, wanted)
    return hidden, model.logits(hidden), kv.tensor


def check(model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    """One call for all layers, or one call a layer for attention: the same bits everywhere."""
    calls: list[int] = []
    forward = CompiledAttention.forward
    monkeypatch.setattr(CompiledAttention, "forward", lambda *args: calls.append(args[1]) or forward(*args))
    fused = step(model, CompiledAttention())
    assert calls == []
    apart = step(model, LayerByLayer())
    assert calls == list(range(model.config.num_layers))
    for one, other in zip(fused, apart, strict=True):
        assert one.isfinite().all()
        assert torch.equal(one, other)


@DTYPES
@pytest.mark.parametrize("name", MODELS)
def test_one_call_equals_layer_by_layer(
    name: str, dtype: torch.dtype, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = request.getfixturevalue(name).folder
    check(load(str(folder), dtype=dtype, kernels="compiled").model, monkeypatch)


@pytest.mark.parametrize("kind", [Type.Q4_0, Type.Q4_1, Type.Q8_0], ids=lambda kind: kind.name)
@pytest.mark.parametrize(("name", "arch"), [("llama", "llama"), ("qwen2", "qwen2"), ("qwen3", "qwen3")])
def test_one_call_equals_layer_by_layer_with_quantised_weights(
    tmp_path: Path,
    name: str,
    arch: str,
    kind: Type,
    request: pytest.FixtureRequest,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    path = write(tmp_path / "m.gguf", request.getfixturevalue(name), arch, kind=kind)
    model = load(str(path), quantization="gguf", kernels="compiled").model
    check(model, monkeypatch)
    whole = load(str(path), dtype="bfloat16", kernels="compiled").model
    assert model.weight_bytes < whole.weight_bytes * 0.6


@pytest.mark.parametrize("name", MODELS)
def test_one_call_is_the_model_that_torch_runs(
    name: str, request: pytest.FixtureRequest, logits: Callable[..., torch.Tensor]
) -> None:
    """In float32 the sums differ by rounding only; three layers of width 32 keep that below a ten-thousandth."""
    folder = request.getfixturevalue(name).folder
    compiled, plain = (load(str(folder), dtype="float32", kernels=kernels).model for kernels in ("compiled", "torch"))
    found, expected = step(compiled, CompiledAttention())[1], step(plain, LayerByLayer())[1]
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4 * float(expected.std()))
    ids = list(range(50))
    torch.testing.assert_close(logits(compiled, ids), logits(plain, ids), rtol=1e-4, atol=1e-4 * float(expected.std()))


@pytest.mark.parametrize("kernels", ["compiled", "torch"])
@pytest.mark.parametrize("wanted", [[0], [9, 2, 9], []], ids=len)
def test_hidden_states_of_some_tokens(kernels: str, wanted: list[int], request: pytest.FixtureRequest) -> None:
    """They are those that all have, and K and V are written for all."""
    model = load(str(request.getfixturevalue("qwen3").folder), dtype="float32", kernels=kernels).model
    attention = CompiledAttention() if kernels == "compiled" else ReferenceAttention()
    tokens = torch.tensor(wanted, dtype=torch.int64)
    (hidden, _, pool), (every, _, whole) = step(model, attention, tokens), step(model, attention)
    torch.testing.assert_close(hidden, every[tokens], rtol=1e-5, atol=1e-5)
    assert torch.equal(pool, whole)


@pytest.mark.parametrize("kind", [Type.Q4_0, Type.Q4_1, Type.Q8_0], ids=lambda kind: kind.name)
@pytest.mark.parametrize("kernels", ["compiled", "onednn", "torch"])
def test_quantised_weights_are_the_rounded_ones(
    tmp_path: Path, qwen2: Any, logits: Callable[..., torch.Tensor], kernels: str, kind: Type
) -> None:
    """Kept in 4 or 8 bits or unpacked to float32: the same answers, but for bfloat16's rounding of what passes by."""
    path = str(write(tmp_path / "m.gguf", qwen2, "qwen2", kind=kind))
    kept = load(path, quantization="gguf", kernels=kernels).model
    ids = [index % 96 for index in range(40)]
    exact = logits(load(path, kernels="torch").model, ids)
    error = logits(kept, ids) - exact
    assert 0 < error.std() < 0.05 * exact.std()
