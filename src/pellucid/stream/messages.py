"""What an engine that is watched says to its watchers.

A watcher first gets a `Hello`, then a `Picture` and from then on a `Step` for every step of the engine.
``seq`` counts the steps told, without a gap: whoever fell behind gets a new `Picture` that says so, and goes
on from there. Nothing here holds token ids or text.
"""

from __future__ import annotations

from msgspec import Struct

from pellucid.kv.acts import AnyAct, Lookup
from pellucid.kv.snapshot import Snapshot

PROTOCOL = 1


class Watched(Struct, frozen=True, kw_only=True):
    """The engine that is watched.

    ``rank`` is its number among data-parallel engine cores, 0 if it is alone; ``started`` is Unix time.
    ``unobservable`` says, a sentence each, what this engine cannot show.
    """

    engine: str
    model: str
    pid: int
    rank: int = 0
    started: float
    unobservable: tuple[str, ...] = ()


class Message(Struct, frozen=True, tag_field="message", tag=str.lower):
    """Base of all messages."""


class Hello(Message, frozen=True):
    """The first message on every connection."""

    watched: Watched
    protocol: int = PROTOCOL


class Picture(Message, frozen=True, kw_only=True):
    """The whole accounting after step message ``seq``, from which a watcher starts or starts again.

    The publisher sets ``seq`` and ``dropped``, which counts all step messages that this watcher was too slow for.
    ``lookups`` are the last lookups of live and of recently finished requests, by name; ``times`` holds the Unix
    times of steps (see `StepTimes`), as far as they are remembered; ``violations`` are what does not hold in this
    picture.
    """

    seq: int = 0
    time: float
    snapshot: Snapshot
    lookups: dict[str, Lookup] = {}
    times: dict[int, float] = {}
    dropped: int = 0
    violations: tuple[str, ...] = ()


class Step(Message, frozen=True, kw_only=True):
    """What happened since the message before: fold ``acts`` to go on."""

    seq: int
    time: float
    acts: tuple[AnyAct, ...]
    violations: tuple[str, ...] = ()


class End(Message, frozen=True):
    """Nothing more will come, and why: the engine ended, or watching it did."""

    reason: str


AnyMessage = Hello | Picture | Step | End
