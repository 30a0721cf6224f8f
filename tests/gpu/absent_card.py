"""For programs that have Triton compile although there is no card: an H200 as far as compiling needs one."""

from __future__ import annotations

from types import SimpleNamespace

import torch
import triton
from triton.backends.compiler import GPUTarget

CAPABILITY = (9, 0)


class AbsentCard:
    """As much of a driver as compiling needs."""

    utils = SimpleNamespace(
        get_device_properties=lambda device: {"max_shared_mem": 232448, "multiprocessor_count": 132},
        load_binary=lambda name, binary, shared, device: (1, 1, 32, 0, 1024),
    )

    def get_current_target(self) -> GPUTarget:
        return GPUTarget("cuda", 10 * CAPABILITY[0] + CAPABILITY[1], 32)

    def get_current_device(self) -> int:
        return 0

    def set_current_device(self, device: int) -> None:
        assert device == 0

    def get_current_stream(self, device: int) -> int:
        return 0

    def launcher_cls(self, source: object, metadata: object) -> object:
        """Of what a launch is given, only the hook in front of it is run, with what it is told."""
        return lambda x, y, z, stream, function, packed, told, before, after, *arguments: before(told)


def card() -> torch.device:
    """The card that there is; or else, from now on, one that is absent, and the processor to put tensors on."""
    if torch.cuda.is_available():
        return torch.device("cuda", torch.cuda.current_device())
    triton.runtime.driver.set_active(AbsentCard())
    torch.cuda.get_device_capability = lambda device=None: CAPABILITY
    return torch.device("cpu")
