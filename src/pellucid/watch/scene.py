"""What one engine core shows at one instant: all that is drawn, written as JSON or explained."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

from pellucid.kv.acts import Lookup
from pellucid.kv.snapshot import Snapshot
from pellucid.stream.messages import Watched


class Scene(Struct, frozen=True, kw_only=True):
    """``snapshot`` after step message ``seq``, at the Unix time ``time``.

    ``watched`` and ``time`` are None in a saved journal, which tells neither; ``rate`` are steps a second, None
    where there is no time to measure them by. ``lookups``, ``times``, ``dropped`` and ``violations`` are those of
    `pellucid.stream.messages.Picture`. ``ended`` says why nothing more comes, None while something may;
    ``notes`` are sentences about the watching itself.
    """

    snapshot: Snapshot
    watched: Watched | None = None
    seq: int = 0
    time: float | None = None
    rate: float | None = None
    lookups: Mapping[str, Lookup] = {}
    times: Mapping[int, float] = {}
    dropped: int = 0
    violations: tuple[str, ...] = ()
    ended: str | None = None
    notes: tuple[str, ...] = ()
