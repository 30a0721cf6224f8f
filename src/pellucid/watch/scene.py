"""What one engine core shows at one instant: all that is drawn, or written as JSON."""

from __future__ import annotations

from msgspec import Struct

from pellucid.kv.snapshot import Snapshot
from pellucid.stream.live import Live
from pellucid.stream.messages import Watched


class Scene(Struct, frozen=True, kw_only=True):
    """``snapshot`` at the Unix time ``time``.

    ``watched`` and ``time`` are None in a saved journal, which tells neither; ``rate`` are steps a second, None
    where there is no time to measure them by. ``dropped`` and ``violations`` are those of
    `pellucid.stream.messages.Picture`. ``ended`` says why nothing more comes, None while something may;
    ``notes`` are sentences about the watching itself.
    """

    snapshot: Snapshot
    watched: Watched | None = None
    time: float | None = None
    rate: float | None = None
    dropped: int = 0
    violations: tuple[str, ...] = ()
    ended: str | None = None
    notes: tuple[str, ...] = ()


def scene_of(live: Live, *, rate: float | None = None, ended: str | None = None, notes: tuple[str, ...] = ()) -> Scene:
    """What ``live`` shows; its goodbye is the end, unless something else was."""
    return Scene(
        snapshot=live.snapshot,
        watched=live.watched,
        time=live.time,
        rate=rate,
        dropped=live.dropped,
        violations=live.violations,
        ended=ended or live.goodbye,
        notes=notes,
    )
