"""The entry point that vLLM calls in each of its processes: observing begins here if a variable asks for it.

Without ``PELLUCID_OBSERVE`` this looks at one variable and returns. vLLM catches no error of a plugin, so nothing
is raised.
"""

from __future__ import annotations

import os

VARIABLE = "PELLUCID_OBSERVE"


def wanted() -> bool:
    """Whether this process is asked to be watched."""
    return os.environ.get(VARIABLE, "") not in ("", "0")


def register() -> None:
    """For the entry point group ``vllm.general_plugins``; vLLM may call it more than once in one process."""
    if not wanted():
        return
    try:
        from pellucid.attach import doorway

        doorway.open_at_start()
    except Exception as error:
        from pellucid import log

        log.say(f"this vLLM is not observed: {type(error).__name__}: {error}")
