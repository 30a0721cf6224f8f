"""What Triton's first kernel would wait for, begun before torch is there."""

from __future__ import annotations

import os
from contextlib import suppress
from functools import cache
from pathlib import Path
from threading import Thread

NVIDIA = Path("/dev/nvidiactl")
"""There if the system has an NVIDIA GPU."""


@cache
def begin() -> Thread | None:
    """Where there is an NVIDIA GPU, import Triton on a thread, which is returned, and have it read itself.

    That takes a second and needs no torch, which takes longer to import. So ``TRITON_…`` variables are to be set before
    `pellucid.LLM` is first used. A process forks only once the thread has ended: its child would wait forever for an
    import that nobody goes on with.
    """
    if not NVIDIA.exists() or os.environ.get("TRITON_INTERPRET", "0") not in ("", "0"):
        return None
    thread = Thread(target=_read, name="pellucid-triton", daemon=True)
    thread.start()
    os.register_at_fork(before=thread.join)
    return thread


def _read() -> None:
    """Triton reads its whole compiler (400 MB) for the name under which it keeps a kernel, once a process. Who has no
    Triton, or a broken one, is told when it is needed."""
    with suppress(Exception):
        from triton.runtime.cache import triton_key

        triton_key()
