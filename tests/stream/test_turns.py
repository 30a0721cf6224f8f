"""The moments at which the engine's thread and the teller could misunderstand each other, brought about on purpose."""

from __future__ import annotations

import random

import pytest

from pellucid.stream import publisher as publisher_module
from watched_engine import ForcedEngine
from watching import Watching, eventually


def test_a_picture_for_somebody_who_left_is_not_shown_to_who_comes_later(
    engine: ForcedEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(publisher_module, "REST", 60.0)
    publisher = engine.broadcast.publisher
    impatient = Watching()
    with publisher.lock:  # a long turn of the engine
        eventually(lambda: publisher.wants_picture)
        picture = engine.broadcast._picture()
        impatient.reader.close()
        eventually(lambda: not publisher.watching)
        publisher.give(picture)
    engine.load(10, random.Random(1))  # told to nobody
    later = Watching()
    eventually(lambda: publisher.watching)
    engine.load(10, random.Random(2))
    later.catch_up(engine.kv.snapshot())


def test_a_busy_engine_shows_itself_at_the_end_of_a_turn(engine: ForcedEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(publisher_module, "REST", 60.0)
    watching = Watching()
    eventually(lambda: engine.broadcast.publisher.wants_picture)
    assert not watching.take(0.2)
    engine.load(5, random.Random(1))
    watching.catch_up(engine.kv.snapshot())


def test_an_engine_that_wakes_in_the_last_moment_is_not_drawn_twice(engine: ForcedEngine) -> None:
    publisher = engine.broadcast.publisher
    drawn = []

    def draw() -> object:
        drawn.append(engine.broadcast._picture())
        return drawn[-1]

    class Late:
        """A lock that the teller gets just after a turn of the engine."""

        def acquire(self, blocking: bool = True) -> bool:
            assert not blocking
            publisher.give(draw())  # type: ignore[arg-type]
            return True

        def release(self) -> None:
            return

    publisher._picture = draw  # type: ignore[assignment]
    publisher.lock = Late()  # type: ignore[assignment]
    watching = Watching()
    watching.until(lambda live: live.ready)
    assert len(drawn) == 1
    assert not watching.take(0.3)


def test_an_engine_in_a_long_turn_is_waited_for(engine: ForcedEngine) -> None:
    """Neither side waits for the other: other watchers go on, and the picture comes when the turn is over."""
    publisher = engine.broadcast.publisher
    with publisher.lock:
        watching = Watching()
        eventually(lambda: publisher.wants_picture)
        assert not watching.take(0.3)
        assert not Watching().take(0.0)  # who comes is greeted meanwhile
    watching.catch_up(engine.kv.snapshot())
