"""Kernels compiled before they are launched, side by side; Triton by itself compiles each when its turn comes.

Before Triton compiles a kernel it asks a hook, and tells it all that compiling takes; the hook may have the launch left
out instead. Compiling is mostly LLVM, ptxas and a C compiler, none of which holds Python's lock: threads share it out.

What launches a kernel is a function of a module that Triton compiles for the kernel's arguments. All these modules have
one name, and Python has one object for all that it loads for a second time: so a thread may load one module, and find
the function of another there, which a thread beside it has loaded meanwhile. (Seen twice in one start of five processes
at once, and in 15 of 12,000 loads by four threads: "function takes exactly 24 arguments (39 given)", or an illegal
address.) So threads only see to it that everything has been compiled, and one thread then loads it.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from functools import partial
from threading import Lock, get_ident
from typing import Any

import triton

from pellucid.errors import KernelError
from pellucid.triton_launch import INTERPRETED
from pellucid.triton_start import begin

_LOADING = Lock()
"""Who loads kernels does it alone in this process."""
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
    with _LOADING:
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
    threads = ThreadPoolExecutor(initializer=driver.set_current_device, initargs=(driver.get_current_device(),))
    with _LOADING:
        with threads as pool:
            ready = [(kernel, pool.submit(build, kernel, variant)) for (kernel, _), variant in kernels.items()]
            try:
                built = [(kernel, named(kernel, future.result)) for kernel, future in ready]
            except KernelError:
                pool.shutdown(wait=False, cancel_futures=True)
                raise
        for kernel, compiled in built:
            named(kernel, partial(getattr, compiled, "run"))


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


def named(kernel: Any, do: Callable[[], Any]) -> Any:
    """What ``do`` gives; if anything goes wrong it is said of ``kernel``."""
    try:
        return do()
    except Exception as error:
        raise KernelError(f"Kernel {kernel.__name__} cannot be compiled for this device: {error}") from error


def build(kernel: Any, specialization: str) -> Any:
    """One variant, and what launches it, compiled or read from Triton's cache; its ``run`` puts it on the device."""
    compiled = kernel.preload(specialization)
    triton.runtime.driver.active.launcher_cls(compiled.src, compiled.metadata)  # in the cache, when it is needed
    return compiled
