"""A scenario: a workload, asked of a subject so that something can be seen."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from pellucid.lab.recorder import Recorder
from pellucid.lang import Sentence

PLAIN: dict[str, Any] = {"enable_prefix_caching": False}
CACHING: dict[str, Any] = {"enable_prefix_caching": True}


class NotArisen(Exception):
    """The subject is too small for the situation, or cannot do what it takes; ``reason`` says why."""

    def __init__(self, reason: Sentence) -> None:
        super().__init__(reason)
        self.reason = reason


class Scenario(NamedTuple):
    """``play`` drives a recorder over an idle subject that was made with ``settings``."""

    name: str
    about: str
    settings: dict[str, Any]
    play: Callable[[Recorder], None]
