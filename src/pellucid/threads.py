"""How torch's threads wait for one another."""

from __future__ import annotations

import os


def sleep_at_barriers() -> None:
    """Let OpenMP threads sleep where they wait, unless the user has said otherwise; before torch is loaded.

    A step of a small model has hundreds of barriers. Spinning threads keep the very core busy that the
    others need whenever something else runs on the machine: ``pellucid prove`` took 66 s so, and 13 s with
    sleeping ones, on two cores.
    """
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
