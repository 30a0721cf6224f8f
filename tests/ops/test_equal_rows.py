"""Equal rows give equal bits, whatever is in the batch and however many threads share the work."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from matrices import KINDS, random_matrix

from model_free import examples
from pellucid.native import native
from pellucid.ops import Ops, choose_ops

pytestmark = pytest.mark.skipif(not native().multiplies_bfloat16, reason="the kernels are not here, or not all of them")

WIDTH, DEPTH = 330, 192
Operation = Callable[[torch.Tensor], torch.Tensor]
KIND = [(torch.float32, "dense"), *((torch.bfloat16, kind) for kind in KINDS)]


@pytest.fixture(autouse=True)
def _threads() -> Iterator[None]:
    yield
    kernels = native().kernels
    if kernels:
        kernels.set_threads(torch.get_num_threads())


@cache
def operations(dtype: torch.dtype, kind: str) -> dict[str, Operation]:
    """Everything that is done with the rows of a batch, one matrix of ``kind`` behind it."""
    ops = choose_ops("compiled", dtype, torch.device("cpu"))
    draw = torch.Generator().manual_seed(3)
    matrix, other = (random_matrix(kind, (WIDTH, DEPTH), dtype, draw) for _ in range(2))
    bias = torch.randn(WIDTH, generator=draw).to(dtype)
    plain, biased, gated = ops.linear([matrix]), ops.linear([matrix], bias), ops.gated(matrix, other)
    vocabulary = ops.vocabulary(matrix)
    weight = torch.randn(DEPTH, generator=draw).to(dtype)
    return {
        "product": plain,
        "product with a bias": biased,
        "gated product": gated,
        "scores": vocabulary.scores,
        "norm": lambda x: ops.rms_norm(x, weight, 1e-5),
        "residual": lambda x: added(plain.add_to, x),
        "rotation": lambda x: rotated(ops, x),
    }


def added(add_to: Callable[[torch.Tensor, torch.Tensor], None], x: torch.Tensor) -> torch.Tensor:
    residual = x[:, :1].repeat(1, WIDTH)
    add_to(residual, x)
    return residual


def rotated(ops: Ops, x: torch.Tensor) -> torch.Tensor:
    """Each row by angles that are its own numbers."""
    heads, angles = x.clone().unflatten(1, (-1, 32)), x[:, :16].float()
    ops.rotate(heads, angles.cos(), angles.sin())
    return heads


def set_threads(threads: int) -> None:
    kernels = native().kernels
    assert kernels is not None
    kernels.set_threads(threads)


@pytest.mark.parametrize(("dtype", "kind"), KIND, ids=[f"{str(dtype)[6:]}-{kind}" for dtype, kind in KIND])
@examples(25)
@given(data=st.data())
def test_a_row_does_not_depend_on_its_batch(dtype: torch.dtype, kind: str, data: st.DataObject) -> None:
    rows = data.draw(st.integers(1, 150), label="rows")
    mine = data.draw(st.lists(st.integers(0, rows - 1), min_size=1, max_size=4), label="places")
    seed = data.draw(st.integers(0, 2**31), label="seed")
    x = torch.randn((rows, DEPTH), generator=torch.Generator().manual_seed(seed)).to(dtype)
    x[mine] = x[mine[0]].clone()
    for name, operation in operations(dtype, kind).items():
        set_threads(1)
        alone = operation(x[mine[:1]])
        set_threads(data.draw(st.integers(1, 4), label="threads"))
        together = operation(x)
        for place in mine:
            assert torch.equal(together[place], alone[0]), name


def test_the_number_of_threads_may_change_between_any_two_products() -> None:
    """A thread that is no member of one round may wake up in the next, of which it is."""
    draw = torch.Generator().manual_seed(5)
    ops = choose_ops("compiled", torch.float32, torch.device("cpu"))
    product, x = ops.linear([torch.randn((32, 64), generator=draw)]), torch.randn((4, 64), generator=draw)
    set_threads(1)
    alone = product(x)
    for round in range(4000):
        set_threads(4 if round % 2 else 2)
        assert torch.equal(product(x), alone)
