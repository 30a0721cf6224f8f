"""Whole layers in Triton against plain torch: hidden states, and every slot of the pool."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from near import assert_near, random

from pellucid.attention import KVStorage, ReferenceAttention, StepLayout
from pellucid.attention.reference import attend, gather
from pellucid.attention.triton import Plan, TritonAttention
from pellucid.model.llama import Model, tensor_shapes
from pellucid.model.tiny import CONFIG
from pellucid.model.weights import RandomWeights
from pellucid.ops import Heads, Layer, Ops, PlainOps, triton_decoder, triton_matrix
from pellucid.ops.triton import TritonOps
from pellucid.ops.triton_norm import rms_norm
from pellucid.ops.triton_tiles import TUNED, Tile
from pellucid.triton_heads import Unturned

EPS, BLOCK, BLOCKS, HIDDEN, INNER = 1e-5, 4, 240, 40, 56


@dataclass(frozen=True)
class Kind:
    heads: Heads
    bias: bool = False
    norms: bool = False


KINDS = {
    "llama": Kind(Heads(4, 2, 24)),
    "qwen2": Kind(Heads(4, 4, 16), bias=True),
    "qwen3": Kind(Heads(6, 3, 16), norms=True),
}
CASES = [("llama", tokens) for tokens in (1, 2, 8, 17, 64, 65)]
CASES += [(name, tokens) for name in ("qwen2", "qwen3") for tokens in (1, 17, 65)]

WAYS = {
    "ours": ("qkv", "output", "gate_up", "down"),
    "of cuBLAS": (),
    "those without a norm": ("output", "down"),
    "those with a norm": ("qkv", "gate_up"),
}
"""The products that our kernels make."""


class AttendsAsReference:
    """The reference, once K and V are there."""

    name = "triton"

    def plan(
        self, q: torch.Tensor, kv: KVStorage, layout: StepLayout, counters: int, *, turns: bool
    ) -> SimpleNamespace:
        """It reads every context whole."""
        return SimpleNamespace(counters=torch.zeros(counters, dtype=torch.int32, device=q.device))

    def attend(
        self,
        layer: int,
        q: torch.Tensor,
        kv: KVStorage,
        layout: StepLayout,
        out: torch.Tensor,
        plan: SimpleNamespace,
    ) -> None:
        k, v = kv.layer(layer)
        bounds = layout.query_start.tolist()
        out.zero_()
        for row, context in enumerate(layout.context_lens.tolist()):
            blocks, mine = layout.block_tables[row], slice(bounds[row], bounds[row + 1])
            out[mine] = attend(q[mine], gather(k, blocks, context), gather(v, blocks, context))


class NotedAttention(TritonAttention):
    """Whether it was to turn heads itself, in each layer."""

    def __init__(self) -> None:
        self.turned: list[bool] = []

    def attend(
        self,
        layer: int,
        q: torch.Tensor,
        kv: KVStorage,
        layout: StepLayout,
        out: torch.Tensor,
        plan: Plan,
        unturned: Unturned | None = None,
    ) -> None:
        self.turned.append(unturned is not None)
        super().attend(layer, q, kv, layout, out, plan, unturned)


def make_layers(kind: Kind, ops: Ops, seed: int, device: torch.device, dtype: torch.dtype) -> list[Layer]:
    """Two layers, their weights drawn in ``dtype`` from ``seed`` and held as ``ops`` has them."""
    draw = torch.Generator().manual_seed(seed)
    queries, keys, dim = kind.heads
    out = (queries + 2 * keys) * dim

    def weight(rows: int, inputs: int) -> torch.Tensor:
        return (random((rows, inputs), draw, dtype, device) * inputs**-0.5).to(ops.dtype)

    def norm(width: int) -> torch.Tensor:
        return (1 + random((width,), draw, dtype, device) / 4).to(ops.dtype)

    def layer() -> Layer:
        input_norm, qkv = ops.folded(norm(HIDDEN), [weight(out, HIDDEN)])
        mlp_norm, gate_up = ops.folded(norm(HIDDEN), [weight(INNER, HIDDEN), weight(INNER, HIDDEN)])
        return Layer(
            input_norm=input_norm,
            qkv=ops.linear(qkv, random((out,), draw, dtype, device) if kind.bias else None),
            q_norm=norm(dim) if kind.norms else None,
            k_norm=norm(dim) if kind.norms else None,
            output=ops.linear([weight(HIDDEN, queries * dim)]),
            mlp_norm=mlp_norm,
            gate_up=ops.gated(*gate_up),
            down=ops.linear([weight(HIDDEN, INNER)]),
        )

    return [layer() for _ in range(2)]


def make_pool(kind: Kind, dtype: torch.dtype, values: torch.Tensor) -> KVStorage:
    kv = KVStorage(2, BLOCKS, BLOCK, kind.heads.keys, kind.heads.dim, dtype, values.device)
    kv.tensor.copy_(values)
    return kv


def make_layout(tokens: int, draw: torch.Generator, device: torch.device) -> tuple[StepLayout, torch.Tensor]:
    """``tokens`` tokens of a few requests, one or several each, behind contexts of some; and their positions."""
    counts, left = [], tokens
    while left:
        counts.append(min(left, int(torch.randint(1, 40, (), generator=draw)) if tokens > 2 else 1))
        left -= counts[-1]
    contexts = [count + int(torch.randint(0, 6, (), generator=draw)) for count in counts]
    lengths = [-(-context // BLOCK) for context in contexts]
    blocks = (torch.randperm(BLOCKS - 1, generator=draw)[: sum(lengths)] + 1).split(lengths)
    places = [torch.arange(context - count, context) for count, context in zip(counts, contexts, strict=True)]
    slots = [table[at // BLOCK] * BLOCK + at % BLOCK for table, at in zip(blocks, places, strict=True)]
    layout = StepLayout(
        query_start=torch.tensor([0, *counts]).cumsum(0).int().to(device),
        context_lens=torch.tensor(contexts, dtype=torch.int32, device=device),
        block_tables=torch.nn.utils.rnn.pad_sequence(list(blocks), batch_first=True).int().to(device),
        slots=torch.cat(slots).to(device),
        max_query=max(counts),
    )
    return layout, torch.cat(places).to(device)


def make_decoding(tokens: int, draw: torch.Generator, device: torch.device) -> tuple[StepLayout, torch.Tensor]:
    """A token each of ``tokens`` requests, apart, and of many the last two padding; and their positions."""
    some = [150, 70, 1, BLOCK, BLOCK + 1, *torch.randint(1, 20, (tokens,), generator=draw).tolist()]
    contexts = some[:tokens] if tokens < 7 else [*some[: tokens - 2], 0, 0]
    lengths = [-(-context // BLOCK) for context in contexts]
    blocks = (torch.randperm(BLOCKS - 1, generator=draw)[: sum(lengths)] + 1).split(lengths)
    positions = torch.tensor([max(context - 1, 0) for context in contexts])
    tables = torch.nn.utils.rnn.pad_sequence(list(blocks), batch_first=True).int()
    slots = tables[torch.arange(tokens), positions // BLOCK].long() * BLOCK + positions % BLOCK
    layout = StepLayout(
        query_start=torch.arange(tokens + 1, dtype=torch.int32, device=device),
        context_lens=torch.tensor(contexts, dtype=torch.int32, device=device),
        block_tables=tables.to(device),
        slots=slots.to(device),
        max_query=1,
        apart=True,
    )
    return layout, positions.to(device)


def layer_by_layer(
    layers: list[Layer], heads: Heads, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, kv: KVStorage,
    layout: StepLayout,
) -> None:  # fmt: skip
    """The oracle: ``x`` through ``layers`` in plain torch, in place."""
    plain = PlainOps(x.dtype)
    for index, layer in enumerate(layers):
        packed = layer.qkv(plain.rms_norm(x, layer.input_norm, EPS)).unflatten(1, (-1, heads.dim))
        q, k, v = packed.split((heads.queries, heads.keys, heads.keys), dim=1)
        if layer.q_norm is not None and layer.k_norm is not None:
            q, k = plain.rms_norm(q, layer.q_norm, EPS), plain.rms_norm(k, layer.k_norm, EPS)
        plain.rotate(q, cos, sin)
        plain.rotate(k, cos, sin)
        layer.output.add_to(x, ReferenceAttention().forward(index, q, k, v, kv, layout).flatten(1))
        layer.down.add_to(x, layer.gate_up(plain.rms_norm(x, layer.mlp_norm, EPS)))


def check_decoder(
    kind: Kind,
    found: torch.Tensor,
    draw: torch.Generator,
    wanted: torch.Tensor | None = None,
    *,
    decoding: bool = False,
) -> None:
    """Hidden states are near the oracle's; K and V are, in their slots, and no other number of the pool has changed.

    ``decoding``: in a step of one token a request, whose heads our attention turns.
    """
    tokens, dtype, device = len(found), found.dtype, found.device
    seed = int(torch.randint(2**31, (), generator=draw))
    layout, positions = (make_decoding if decoding else make_layout)(tokens, draw, device)
    attention = NotedAttention() if decoding else AttendsAsReference()
    angles = positions[:, None].float() * 10000 ** -torch.linspace(0, 0.9, kind.heads.dim // 2, device=device)
    cos, sin = angles.cos(), angles.sin()
    before = random((2, 2, BLOCKS, BLOCK, kind.heads.keys, kind.heads.dim), draw, dtype, device)
    expected, exact, pool = found.double(), make_pool(kind, torch.float64, before), make_pool(kind, dtype, before)

    decoder = TritonOps(dtype).decoder(make_layers(kind, TritonOps(dtype), seed, device, dtype), kind.heads, EPS)
    assert decoder is not None
    found = decoder(found, cos, sin, pool, layout, attention, wanted)  # type: ignore[arg-type]
    layers = make_layers(kind, PlainOps(torch.float64), seed, device, dtype)
    layer_by_layer(layers, kind.heads, expected, cos, sin, exact, layout)

    real = layout.context_lens > 0 if decoding else slice(None)
    assert_near(found[real], expected[real] if wanted is None else expected[wanted], units=40)
    slots, written = pool.tensor.flatten(2, 3), layout.slots[real]
    assert_near(slots[:, :, written], exact.tensor.flatten(2, 3)[:, :, written], units=40)
    rest = torch.ones(BLOCKS * BLOCK, dtype=torch.bool, device=device)
    rest[written] = False
    if isinstance(attention, NotedAttention):
        assert attention.turned == [True, True]
    assert torch.equal(slots[:, :, rest], before.flatten(2, 3)[:, :, rest])


@pytest.mark.parametrize(
    ("name", "tokens", "way"),
    [("llama", 17, "ours"), ("qwen2", 17, "of cuBLAS"), ("qwen3", 1, "ours"), ("qwen3", 17, "of cuBLAS")],
)
def test_attention_turns_heads(
    name: str, tokens: int, way: str, dtype: torch.dtype, draw: torch.Generator, device: torch.device,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """Straight from the product: of contexts of one part and of several, and of padding."""
    share_out(KINDS[name], way, monkeypatch)
    found = random((tokens, HIDDEN), draw, dtype, device)
    late: list[bool] = []
    product = triton_matrix.product

    def noted(*arguments: Any, **options: Any) -> None:
        late.append(options.get("late", False))
        product(*arguments, **options)

    monkeypatch.setattr(triton_matrix, "product", noted)
    check_decoder(KINDS[name], found, draw, decoding=True)
    ours = (KINDS[name].norms is False and way == "ours") or tokens == 1
    assert late.count(True) == (2 if ours else 0)  # else the plan might be read before it is made


@pytest.mark.parametrize(
    ("name", "apart", "turned"), [("llama", True, False), ("qwen3", True, True), ("qwen3", False, False)]
)
def test_heads_turn_before_attention_if_they_are_few_or_another_reads_them(
    name: str, apart: bool, turned: bool, draw: torch.Generator, device: torch.device
) -> None:
    """Few turn in the product itself, where that is ours and heads are not normed."""
    kind, attention = KINDS[name], NotedAttention()
    layout, positions = make_decoding(2, draw, device)
    angles = positions[:, None].float() * torch.ones(kind.heads.dim // 2, device=device)
    layers = make_layers(kind, TritonOps(torch.float32), 5, device, torch.float32)
    decoder = TritonOps(torch.float32).decoder(layers, kind.heads, EPS)
    assert decoder is not None
    pool = make_pool(
        kind, torch.float32, torch.zeros(2, 2, BLOCKS, BLOCK, kind.heads.keys, kind.heads.dim, device=device)
    )
    x = random((2, HIDDEN), draw, torch.float32, device)
    decoder(x, angles.cos(), angles.sin(), pool, replace(layout, apart=apart), attention)
    assert attention.turned == [turned, turned]


@pytest.mark.parametrize(("name", "tokens"), CASES)
def test_decoder(name: str, tokens: int, dtype: torch.dtype, draw: torch.Generator, device: torch.device) -> None:
    check_decoder(KINDS[name], random((tokens, HIDDEN), draw, dtype, device), draw)


@pytest.mark.parametrize("wanted", [[0], [69, 3, 40, 3], list(range(70))], ids=len)
def test_last_layer_for_some_tokens(
    wanted: list[int], dtype: torch.dtype, draw: torch.Generator, device: torch.device
) -> None:
    """In any order, and more than once: rows of padding want a token that is another's too."""
    check_decoder(KINDS["llama"], random((70, HIDDEN), draw, dtype, device), draw, torch.tensor(wanted, device=device))


def share_out(kind: Kind, way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have our kernels make those products of 17 to 128 rows that they make in ``way``, those of 33 to 64 in bulk where
    they can, and cuBLAS the others."""
    queries, keys, dim = kind.heads
    shapes = {
        "qkv": ((queries + 2 * keys) * dim, HIDDEN),
        "output": (HIDDEN, queries * dim),
        "gate_up": (2 * INNER, HIDDEN),
        "down": (HIDDEN, INNER),
    }
    for name, shape in shapes.items():
        for rows in (32, 64, 128):
            monkeypatch.setitem(
                TUNED, (*shape, rows), Tile(64, 32, rows=rows // 2, bulk=rows == 64) if name in WAYS[way] else None
            )


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(("name", "tokens"), [("llama", 64), ("qwen2", 40), ("qwen3", 17), ("llama", 100)])
def test_products_shared_out(
    name: str, tokens: int, way: str, dtype: torch.dtype, draw: torch.Generator, device: torch.device,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """Whoever makes a product, rows of any magnitude are normed: by no kernel of its own but in float16."""
    share_out(KINDS[name], way, monkeypatch)
    normed: list[int] = []
    count = partial(counted, normed)
    monkeypatch.setattr(triton_matrix, "rms_norm", count)
    monkeypatch.setattr(triton_decoder, "rms_norm", count)
    magnitudes = 2.0 ** torch.randint(-8, 9, (tokens, 1), generator=draw).to(device)
    found = (random((tokens, HIDDEN), draw, torch.float32, device) * magnitudes).to(dtype)
    check_decoder(KINDS[name], found, draw)
    assert len(normed) == (4 if dtype is torch.float16 else 0)


def test_many_rows_are_normed_before_the_product(
    dtype: torch.dtype, draw: torch.Generator, device: torch.device, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(triton_matrix, "MOST_UNSCALED", 64)
    normed: list[int] = []
    monkeypatch.setattr(triton_matrix, "rms_norm", partial(counted, normed))
    check_decoder(KINDS["qwen3"], random((65, HIDDEN), draw, dtype, device), draw)
    assert len(normed) == (0 if dtype is torch.float16 else 4)


def counted(calls: list[int], x: torch.Tensor, weight: torch.Tensor | None, eps: float) -> torch.Tensor:
    calls.append(len(x))
    return rms_norm(x, weight, eps)


@pytest.mark.parametrize("tokens", [1, 17, 65])
def test_a_model_with_attention_in_triton(tokens: int, draw: torch.Generator, device: torch.device) -> None:
    """The decoder takes over from layer by layer, and the logits stay what they were."""
    weights = RandomWeights(tensor_shapes(CONFIG), 3)
    layout, positions = make_layout(tokens, draw, device)
    ids = torch.randint(CONFIG.vocab_size, (tokens,), generator=draw).to(device)
    logits = []
    for ops, attention in (
        (TritonOps(torch.float32), TritonAttention()),
        (PlainOps(torch.float32), ReferenceAttention()),
    ):
        model = Model(CONFIG, weights, ops, device)
        kv = KVStorage(CONFIG.num_layers, BLOCKS, BLOCK, CONFIG.num_kv_heads, CONFIG.head_dim, ops.dtype, device)
        hidden = model.forward(ids, positions, kv, layout, attention)
        logits.append(model.logits(hidden))
    assert_near(logits[0], logits[1].double(), units=40)
