"""Pellucid: a PagedAttention inference engine you can see through.

Names are imported when first used, so that ``import pellucid`` needs neither torch nor numpy.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from pellucid.notebook import register as _show_pictures

if TYPE_CHECKING:
    from pellucid.engine.llm import LLM as LLM
    from pellucid.engine.output import CompletionOutput as CompletionOutput
    from pellucid.engine.output import RequestOutput as RequestOutput
    from pellucid.kv.journal import Journal as Journal
    from pellucid.kv.snapshot import Snapshot as Snapshot
    from pellucid.lab.claim import Claim as Claim
    from pellucid.lab.proof import Proof as Proof
    from pellucid.plan.sampling import SamplingParams as SamplingParams

__version__ = "0.1.0"

_HOME = {
    "Claim": "pellucid.lab.claim",
    "Journal": "pellucid.kv.journal",
    "Proof": "pellucid.lab.proof",
    "Snapshot": "pellucid.kv.snapshot",
    "LLM": "pellucid.engine.llm",
    "RequestOutput": "pellucid.engine.output",
    "CompletionOutput": "pellucid.engine.output",
    "SamplingParams": "pellucid.plan.sampling",
}

__all__ = [
    "LLM",
    "Claim",
    "CompletionOutput",
    "Journal",
    "Proof",
    "RequestOutput",
    "SamplingParams",
    "Snapshot",
    "__version__",
]


_show_pictures()


def __getattr__(name: str) -> object:
    if name not in _HOME:
        raise AttributeError(f"module 'pellucid' has no attribute {name!r}")
    from pellucid.imports import uncollected
    from pellucid.threads import sleep_at_barriers

    sleep_at_barriers()
    if name == "LLM":
        importlib.import_module("pellucid.triton_start").begin()
    try:
        with uncollected():
            return getattr(importlib.import_module(_HOME[name]), name)
    except ModuleNotFoundError as error:
        from pellucid.errors import missing_extra

        raise (missing_extra(error) or error) from None
