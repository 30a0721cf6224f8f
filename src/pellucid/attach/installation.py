"""Whether the vLLM of this environment would find Pellucid, and let it in."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Mapping

GROUP, NAME = "vllm.general_plugins", "pellucid"
PLUGINS = "VLLM_PLUGINS"
"""vLLM's own variable: the only plugins that it loads; unset, it loads all."""


def is_registered() -> bool:
    """Whether vLLM finds Pellucid's entry point."""
    return bool(importlib.metadata.entry_points(group=GROUP, name=NAME))


def is_let_in(environment: Mapping[str, str]) -> bool:
    """Whether vLLM would load a plugin of our name."""
    return PLUGINS not in environment or NAME in environment[PLUGINS].split(",")
