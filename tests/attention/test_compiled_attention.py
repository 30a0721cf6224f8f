"""A token's attention has the same bits, however the step it is computed in was put together."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from model_free import examples
from pellucid.attention import CompiledAttention, KVStorage, StepLayout
from pellucid.errors import InvariantViolation
from pellucid.native import native

pytestmark = pytest.mark.skipif(not native().multiplies_bfloat16, reason="the kernels are not here, or not all of them")

LONGEST = 150


@pytest.fixture(autouse=True)
def _threads() -> Iterator[None]:
    yield
    kernels = native().kernels
    if kernels:
        kernels.set_threads(torch.get_num_threads())


class Text(NamedTuple):
    """Queries, keys and values of every token of a request, [tokens, heads, dim]."""

    q: torch.Tensor
    k: torch.Tensor
    v: torch.Tensor


def text(seed: int, tokens: int, heads: tuple[int, int, int], dtype: torch.dtype) -> Text:
    draw = torch.Generator().manual_seed(seed)
    queries, keys, dim = heads
    return Text(*(torch.randn((tokens, count, dim), generator=draw).to(dtype) for count in (queries, keys, keys)))


def play(texts: Sequence[Text], cuts: Sequence[Sequence[int]], block_size: int, shuffle: int) -> list[torch.Tensor]:
    """Compute ``texts`` together, text i in steps that end at ``cuts[i]``: the attention of all of their tokens.

    Blocks are scattered over a pool full of NaN. A text with fewer cuts is done sooner.
    """
    heads, dim = texts[0].k.shape[1:]
    lengths = [-(-len(one.q) // block_size) for one in texts]
    kv = KVStorage(1, sum(lengths) + 1, block_size, heads, dim, texts[0].q.dtype)
    kv.tensor.fill_(torch.nan)
    ids = torch.randperm(sum(lengths), generator=torch.Generator().manual_seed(shuffle)).int() + 1
    tables = ids.split(lengths)
    attention = CompiledAttention()
    found: list[list[torch.Tensor]] = [[] for _ in texts]
    for step in range(max(map(len, cuts))):
        rows = [row for row, ends in enumerate(cuts) if step < len(ends)]
        ranges = [range(cuts[row][step - 1] if step else 0, cuts[row][step]) for row in rows]
        width = max(lengths)
        layout = StepLayout(
            query_start=torch.tensor([0, *(len(mine) for mine in ranges)]).cumsum(0).int(),
            context_lens=torch.tensor([mine.stop for mine in ranges], dtype=torch.int32),
            block_tables=torch.stack([torch.cat((tables[row], tables[row].new_zeros(width)))[:width] for row in rows]),
            slots=torch.cat([slots(tables[row], mine, block_size) for row, mine in zip(rows, ranges, strict=True)]),
            max_query=max(map(len, ranges)),
        )
        q, k, v = (
            torch.cat([texts[row][part][mine.start : mine.stop] for row, mine in zip(rows, ranges, strict=True)])
            for part in range(3)
        )
        out = attention.forward(0, q, k, v, kv, layout)
        for row, mine in zip(rows, out.split([len(mine) for mine in ranges]), strict=True):
            found[row].append(mine)
    return [torch.cat(pieces) for pieces in found]


def slots(table: torch.Tensor, positions: range, block_size: int) -> torch.Tensor:
    at = torch.arange(positions.start, positions.stop)
    return table[at // block_size].long() * block_size + at % block_size


HEADS = st.sampled_from([(4, 2, 16), (3, 1, 8), (9, 3, 64), (8, 1, 18), (2, 2, 128), (2, 1, 256), (6, 3, 80)])


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["float32", "bfloat16"])
@examples(60)
@given(data=st.data())
def test_chunks_batches_blocks_and_threads_change_no_bit(dtype: torch.dtype, data: st.DataObject) -> None:
    heads = data.draw(HEADS, label="heads")
    tokens = data.draw(st.integers(1, LONGEST), label="tokens")
    mine = text(data.draw(st.integers(0, 1000), label="seed"), tokens, heads, dtype)
    others = [
        text(2000 + index, length, heads, dtype)
        for index, length in enumerate(data.draw(st.lists(st.integers(1, 70), max_size=5), label="others"))
    ]
    set_threads(1)
    alone = play([mine], [[tokens]], 16, shuffle=0)[0]
    assert alone.isfinite().all()
    cuts = [data.draw(steps(len(one.q)), label="steps end at") for one in (mine, *others)]
    order = data.draw(st.permutations(range(len(cuts))), label="order")
    set_threads(data.draw(st.integers(1, 4), label="threads"))
    block_size = 2 ** data.draw(st.integers(0, 8), label="block size's exponent")
    batch = [(mine, *others)[index] for index in order]
    together = play(batch, [cuts[index] for index in order], block_size, shuffle=tokens)
    assert torch.equal(together[order.index(0)], alone)


@st.composite
def steps(draw: st.DrawFn, tokens: int) -> list[int]:
    """Where the steps of a text end: anywhere, and at its end. Often the last tokens come one by one."""
    ends = draw(st.sets(st.integers(1, tokens), max_size=6))
    decoded = draw(st.integers(0, min(tokens, 8)))
    return sorted(ends | {tokens} | set(range(tokens - decoded + 1, tokens)))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["float32", "bfloat16"])
def test_one_token_at_a_time(dtype: torch.dtype) -> None:
    mine = text(1, 140, (6, 2, 48), dtype)
    whole, single = (play([mine], [cuts], 8, shuffle=1)[0] for cuts in ([140], list(range(1, 141))))
    assert torch.equal(whole, single)


@pytest.mark.parametrize("bad", [torch.nan, torch.inf])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["float32", "bfloat16"])
def test_no_later_token_is_seen_not_even_one_that_is_no_number(dtype: torch.dtype, bad: float) -> None:
    """bfloat16 values are multiplied two at a time, and a weight of 0 would not hide a NaN."""
    for at in (8, 9, 63, 64, 65):
        good, spoilt = text(1, 70, (2, 1, 16), dtype), text(1, 70, (2, 1, 16), dtype)
        spoilt.k[at] = spoilt.v[at] = bad
        expected, found = (play([one], [[70]], 8, shuffle=1)[0] for one in (good, spoilt))
        assert torch.equal(found[:at], expected[:at])
        assert not found[at:].isfinite().any()


def set_threads(threads: int) -> None:
    kernels = native().kernels
    assert kernels is not None
    kernels.set_threads(threads)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("where", ["q", "k"])
@pytest.mark.parametrize("wrong", [torch.nan, torch.inf])
def test_what_is_no_number_is_not_made_one(wrong: float, where: str, dtype: torch.dtype) -> None:
    """A broken model must not look like a sound one: its tokens' attention is NaN, as in the reference."""
    broken = text(5, 70, (2, 1, 16), dtype)
    getattr(broken, where)[66] = wrong
    out = play([broken], [[70]], 4, shuffle=1)[0]
    assert out[66].isnan().all()
    assert out[:66].isfinite().all()


def test_a_pool_of_another_type_is_refused() -> None:
    one = text(1, 1, (2, 1, 16), torch.bfloat16)
    kv = KVStorage(1, 2, 4, 1, 16, torch.float32)
    first = torch.ones(1, dtype=torch.int32)
    layout = StepLayout(torch.tensor([0, 1], dtype=torch.int32), first, first[None], torch.tensor([4]), 1)
    with pytest.raises(InvariantViolation, match=r"bfloat16.*float32"):
        CompiledAttention().forward(0, *one, kv, layout)
