"""A program of its own, as Triton interprets in the tests' process: kernels launched, after `compile_ahead` or not.

    python compiled_ahead.py ahead|plain

Prints a JSON object: how many kernels were compiled and how many read from Triton's cache, how often the walk through
the launches launched one, how many it would still leave out, what is said of a kernel that cannot be compiled, and
which launches were by something that this thread had made, by itself.
Where there is no card, kernels are compiled for an H200, and launches counted.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from threading import get_ident
from typing import Any

import torch
import triton
import triton.language as tl
from absent_card import card

from pellucid.errors import KernelError
from pellucid.runtime.compiling import compile_ahead, left_out, prepare

DEVICE = card()
launched: list[str] = []
making: set[int] = set()
"""Threads that make something that launches a kernel just now."""
alone: list[bool] = []
"""Of each launch, whether what did it was made by the thread of this program, and nothing else at the same time."""


@triton.jit
def add_kernel(x, number, WIDTH: tl.constexpr):
    place = x + tl.arange(0, WIDTH)
    tl.store(place, tl.load(place) + number)


@triton.jit
def negate_kernel(x, WIDTH: tl.constexpr):
    place = x + tl.arange(0, WIDTH)
    tl.store(place, -tl.load(place))


@triton.jit
def broken_kernel(x, WIDTH: tl.constexpr):
    tl.store(x + tl.arange(0, WIDTH), 0)


def launch() -> None:
    """Three kernels, as Triton counts, launched four times."""
    x = torch.zeros(64, device=DEVICE)
    for width in (16, 32, 16):
        add_kernel[(1,)](x, 2.5, WIDTH=width)
    negate_kernel[(1,)](x, WIDTH=64)
    if launched and DEVICE.type == "cuda":
        assert x[:33].tolist() == [-7.5] * 16 + [-2.5] * 16 + [0]


def watched(make: Callable[[object, object], Callable[..., Any]]) -> Callable[[object, object], Callable[..., Any]]:
    """``make``, which makes what launches a kernel: who made it when is noted at each launch."""
    here = get_ident()

    def made(source: object, metadata: object) -> Callable[..., Any]:
        making.add(get_ident())
        launcher = make(source, metadata)
        by_itself = making == {here}
        making.discard(get_ident())

        def launch(*arguments: Any) -> Any:
            alone.append(by_itself)
            return launcher(*arguments)

        return launch

    return made


def main(ahead: bool) -> None:
    triton.knobs.runtime.launch_enter_hook.add(lambda metadata: launched.append(metadata.get()["name"]))
    triton.runtime.driver.active.launcher_cls = watched(triton.runtime.driver.active.launcher_cls)
    compiled: list[bool] = []
    triton.knobs.compilation.listener = lambda *, cache_hit, **_: compiled.append(not cache_hit)
    refusal = ""
    if ahead:
        prepare(0)
        compile_ahead(launch)
        try:
            compile_ahead(lambda: broken_kernel[(1,)](torch.zeros(64, device=DEVICE), WIDTH=24))
        except KernelError as error:
            refusal = str(error)
    walked, still = len(launched), len(left_out(launch)) if ahead else 0
    launched.clear()
    alone.clear()
    launch()
    said = {"compiled": sum(compiled), "read": len(compiled) - sum(compiled), "walked": walked, "still": still}
    print(json.dumps(said | {"launched": launched, "refusal": refusal, "alone": alone}))


main(sys.argv[1] == "ahead")
