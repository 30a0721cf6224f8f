"""What a server's watchers are told when something does not add up."""

from __future__ import annotations

from pathlib import Path

import pytest

from attach.test_layout import scheduler
from pellucid.attach.names import Names
from pellucid.attach.served import MOST_SENTENCES, Served
from pellucid.stream.live import Live
from pellucid.stream.reader import connect


@pytest.fixture(autouse=True)
def own_sockets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PELLUCID_RUNTIME_DIR", str(tmp_path))


def test_what_does_not_add_up_stays_in_view_for_whoever_comes_later() -> None:
    served = Served(scheduler(), Names())
    try:
        served._told(1.0, (), ("block 3 is lost.",))
        served._told(2.0, (), ())
        with connect(served.publisher.path, timeout=10) as reader:
            live = Live(reader.hello.watched)
            while not live.ready:
                message = reader.next(timeout=10)
                assert message is not None
                live.take(message)
        assert live.violations == ("block 3 is lost.",)
    finally:
        served.observer.stop("the test is over")
        served.publisher.close("the test is over")


def test_there_is_a_bound_to_it() -> None:
    served = Served(scheduler(), Names())
    try:
        for number in range(2 * MOST_SENTENCES):
            served._told(1.0, (), (f"{number}",))
        assert served._picture().violations == tuple(map(str, range(MOST_SENTENCES)))
    finally:
        served.observer.stop("the test is over")
        served.publisher.close("the test is over")
