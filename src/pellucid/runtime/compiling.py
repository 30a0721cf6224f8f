"""Kernels compiled before they are launched, side by side; Triton by itself compiles each when its turn comes.

Before Triton compiles a kernel it asks a hook, and tells it all that compiling takes; the hook may have the launch left
out instead. Compiling is mostly LLVM, ptxas and a C compiler, none of which holds Python's lock: threads share it out.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from threading import Lock, get_ident
from typing import Any

import triton

from pellucid.errors import KernelError
from pellucid.triton_launch import INTERPRETED
from pellucid.triton_start import begin

_LEAVING_OUT = Lock()
"""The hook is the process's: who sets it puts back what was there before."""
_PREPARATIONS: dict[int, Future[None]] = {}
"""By device."""


@triton.jit
def empty_kernel():
    pass


def prepare(device: int) -> None:
    """Begin, on a thread of its own, what the first kernel of a process would wait for; `compile_ahead` waits for it.

    Triton reads itself, which `pellucid.triton_start` may have begun, builds a module that talks to the driver, and
    asks ptxas for its version; the system reads the tools from the disk. A kernel that does nothing, compiled and
    loaded on the CUDA ``device``, brings all that about.
    """
    if INTERPRETED or device in _PREPARATIONS:
        return
    thread = ThreadPoolExecutor(1)
    _PREPARATIONS[device] = thread.submit(_compile_nothing, device)
    thread.shutdown(wait=False)


def _compile_nothing(device: int) -> None:
    if reading := begin():
        reading.join()
    triton.runtime.driver.active.set_current_device(device)
    _ = empty_kernel.warmup(grid=(1,)).run


def compile_ahead(launch: Callable[[], object]) -> None:
    """Compile what ``launch`` launches on the current device and is not there yet, on all processors, and load it.

    For this ``launch`` is run without those kernels, so what they should have written is not there: give it something
    to do that no number can lead astray. Where Triton interprets there is nothing to compile, and nothing is run.

    Raises `KernelError` with the name of a kernel that cannot be had.
    """
    if INTERPRETED:
        return
    wait(_PREPARATIONS.values())  # what went wrong there goes wrong again below, for a kernel with a name
    kernels = left_out(launch)
    driver = triton.runtime.driver.active
    with ThreadPoolExecutor(initializer=driver.set_current_device, initargs=(driver.get_current_device(),)) as pool:
        ready = [(kernel, pool.submit(load, kernel, specialization)) for (kernel, _), specialization in kernels.items()]
        for kernel, future in ready:
            try:
                future.result()
            except Exception as error:
                pool.shutdown(wait=False, cancel_futures=True)
                raise KernelError(f"Kernel {kernel.__name__} cannot be compiled for this device: {error}") from error


def left_out(launch: Callable[[], object]) -> dict[tuple[Any, str], str]:
    """Run ``launch`` without the kernels that are not compiled: what they are, in the order of their first launch.

    A kernel and Triton's key of the variant; and what tells `JITFunction.preload` to compile it.
    """
    found: dict[tuple[Any, str], str] = {}
    here = get_ident()

    def leave_out(*, key: str, fn: Any, compile: dict[str, Any], **_: object) -> bool:
        if get_ident() == here:  # what other engines of the process launch meanwhile is theirs
            found.setdefault((fn.jit_function, key), compile["specialization_data"])
        return get_ident() == here

    knobs = triton.knobs.runtime
    with _LEAVING_OUT, knobs.scope():
        knobs.jit_cache_hook = leave_out
        launch()
    return found


def load(kernel: Any, specialization: str) -> None:
    """Compile one variant, or read it from Triton's cache, and put it on the device with what launches it."""
    _ = kernel.preload(specialization).run
