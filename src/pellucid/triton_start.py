"""What Triton's first kernel would wait for, begun before torch is there."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from threading import Thread

NVIDIA = Path("/dev/nvidiactl")
"""There if the system has an NVIDIA GPU."""


def begin() -> Thread | None:
    """Where there is an NVIDIA GPU, do on a thread, which is returned, what takes Triton one or two seconds and needs
    no torch: that takes longer to import, most of it from the disk.

    What goes wrong here goes wrong again, where it is seen: `pellucid.runtime.compiling.prepare` does the rest.
    """
    if not NVIDIA.exists():
        return None
    thread = Thread(target=_read_and_build, name="pellucid-triton", daemon=True)
    thread.start()
    return thread


def _read_and_build() -> None:
    """Triton reads its whole compiler (400 MB) for the name under which it keeps a kernel, once a process; and has a
    module built that talks to the driver, which it keeps on the disk."""
    with suppress(Exception):
        from triton.runtime.cache import triton_key

        triton_key()
        from triton.backends.nvidia.driver import CudaUtils

        CudaUtils()
