"""How observing gets into vLLM's own process: the scheduler that is built there is met as it is built.

The classes are wrapped where a scheduler, or a request's inner name, is made; everything else happens on the one
live object.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from pellucid import log
from pellucid.attach.names import Names
from pellucid.errors import PellucidError

SCHEDULER = ("vllm.v1.core.sched.scheduler", "Scheduler")
CORE = ("vllm.v1.engine.core", "EngineCore")

_opened: set[str] = set()
_names = Names()


def open_at_start() -> None:
    """Observe every scheduler of this process from the end of its construction (``AsyncScheduler`` is one too)."""

    def begin(scheduler: Any, original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        result = original(scheduler, *args, **kwargs)
        _observe(scheduler)
        return result

    _wrap(SCHEDULER, "__init__", begin)


def open_at_first_request() -> None:
    """Observe a scheduler that is being built already, from just before its first request."""

    def begin(scheduler: Any, original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        if "pellucid" in scheduler.__dict__:
            return original(scheduler, *args, **kwargs)
        _observe(scheduler)
        return scheduler.add_request(*args, **kwargs)  # wrapped by now, on the object

    _listen_for_names()
    _wrap(SCHEDULER, "add_request", begin)


def _observe(scheduler: Any) -> None:
    """Never raises: what cannot be observed says so, and goes on unobserved."""
    if "pellucid" in scheduler.__dict__:
        return
    scheduler.pellucid = None
    try:
        _listen_for_names()
        from pellucid.attach.served import Served

        scheduler.pellucid = Served(scheduler, _names)
    except PellucidError as error:
        log.say(f"this vLLM is not observed: {error}")
    except Exception as error:
        log.say(f"this vLLM is not observed: {type(error).__name__}: {error}")


def _listen_for_names() -> None:
    """Hear each caller's name as vLLM makes its own of it. Before 0.14.0 a request keeps the name it was given."""

    def announce(core: Any, original: Callable[..., Any], request: Any) -> Any:
        with suppress(Exception):  # in another thread than the scheduler's; whatever it is, vLLM goes on
            _names.announce(request.request_id, getattr(request, "external_req_id", None))
        return original(core, request)

    if CORE[0] in sys.modules and hasattr(getattr(sys.modules[CORE[0]], CORE[1]), "preprocess_add_request"):
        _wrap(CORE, "preprocess_add_request", announce)


def _wrap(place: tuple[str, str], method: str, around: Callable[..., Any]) -> None:
    """Put ``around(self, original, ...)`` in the place of a method, once in a process."""
    key = ".".join((*place, method))
    if key in _opened:
        return
    kind = getattr(importlib.import_module(place[0]), place[1])
    original = getattr(kind, method)

    def wrapper(self: Any, *args: Any, **kwargs: Any) -> Any:
        return around(self, original, *args, **kwargs)

    setattr(kind, method, wrapper)
    _opened.add(key)
