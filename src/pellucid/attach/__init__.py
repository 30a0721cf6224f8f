"""Observing a vLLM: in process, and from inside the engine core of a running server.

Names are imported when first used: vLLM imports this package in each of its processes.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pellucid.attach.kv import ObservedKV as ObservedKV
    from pellucid.attach.kv import observe as observe

__all__ = ["ObservedKV", "observe"]


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module 'pellucid.attach' has no attribute {name!r}")
    return getattr(importlib.import_module("pellucid.attach.kv"), name)
