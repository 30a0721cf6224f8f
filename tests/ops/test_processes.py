"""The kernels' threads among other threads, and after a fork."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading

import pytest
import torch

from pellucid.native import native
from pellucid.ops import choose_ops

pytestmark = pytest.mark.skipif(native().kernels is None, reason=native().why)

FORK = """
import os, sys, torch
from pellucid.native import native
from pellucid.ops import choose_ops

ops = choose_ops("compiled", torch.float32, torch.device("cpu"))
native().kernels.set_threads(3)
product, x = ops.linear([torch.randn(300, 64)]), torch.randn(20, 64)
expected = product(x)  # the threads are there now
child = os.fork()
if child == 0:
    same = all(torch.equal(product(x), expected) for _ in range(20))
    os._exit(0 if same else 1)
_, status = os.waitpid(child, 0)
assert torch.equal(product(x), expected)
sys.exit(os.waitstatus_to_exitcode(status))
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
def test_a_forked_child_computes_too() -> None:
    """It has none of its parent's threads; waiting for them, it would wait for ever."""
    with subprocess.Popen(
        [sys.executable, "-c", FORK], stderr=subprocess.PIPE, text=True, start_new_session=True
    ) as run:
        try:
            said = run.communicate(timeout=60)[1]
        except subprocess.TimeoutExpired:
            os.killpg(run.pid, signal.SIGKILL)
            pytest.fail("the child, or its parent, was still waiting after a minute")
    assert run.returncode == 0, said


@pytest.mark.parametrize("members", [1, 3])
def test_threads_of_a_program_may_call_at_once(members: int) -> None:
    """Each has a product of its own; the kernels' threads serve one caller after the other."""
    kernels = native().kernels
    assert kernels is not None
    ops = choose_ops("compiled", torch.float32, torch.device("cpu"))
    kernels.set_threads(members)
    wrong: list[int] = []

    def work(number: int) -> None:
        draw = torch.Generator().manual_seed(number)
        weight, x = torch.randn((200, 64), generator=draw), torch.randn((6 + number, 64), generator=draw)
        product, expected = ops.linear([weight]), x @ weight.T
        wrong.extend(number for _ in range(200) if not torch.allclose(product(x), expected, rtol=1e-4, atol=1e-4))

    try:
        threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        kernels.set_threads(torch.get_num_threads())
    assert not wrong
