"""What a watcher knows of an engine with several KV groups, and of the past."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from pellucid.errors import FinishedRequest, JournalError, StreamError
from pellucid.kv import KVManager, acts
from pellucid.kv.acts import Lookup, LookupKind, Miss, MissReason
from pellucid.kv.snapshot import GroupView, Snapshot
from pellucid.stream.live import REMEMBERED_REQUESTS, Live
from pellucid.stream.messages import Picture, Step, Watched

WATCHED = Watched(engine="e", model="m", pid=1, started=0.0)


def two_groups() -> Snapshot:
    base = KVManager(9, 4, reuse_policy="vllm-0.24").snapshot()
    return replace(base, groups=(GroupView("full attention", 4), GroupView("sliding window", 4, window=6)))


def live_after(*told: acts.AnyAct, snapshot: Snapshot | None = None) -> Live:
    live = Live(WATCHED)
    live.take(Picture(time=100.0, snapshot=snapshot or two_groups()))
    live.take(Step(seq=1, time=101.0, acts=told))
    return live


def test_an_ended_request_had_a_table_in_each_group() -> None:
    live = live_after(
        acts.Open(1, "a", 5, b""),
        acts.Admit(1, "a", 0),
        acts.Take(1, "a", (1, 2), 0),
        acts.Take(1, "a", (3, 4), 1),
    )
    assert live.tables("a") == ((1, 2), (3, 4))
    returns = (acts.Return(2, "a", (2, 1), (), 0, 0), acts.Return(2, "a", (4, 3), (), 0, 1))
    live.take(Step(seq=2, time=102.0, acts=(*returns, acts.Close(2, "a", 5, "abort"))))
    with pytest.raises(FinishedRequest, match=r"finished in step 2; it held \(1, 2\), \(3, 4\) last"):
        live.tables("a")


def test_who_was_preempted_and_then_ended_held_nothing_last() -> None:
    live = live_after(
        acts.Open(1, "a", 5, b""),
        acts.Admit(1, "a", 0),
        acts.Take(1, "a", (1, 2), 0),
        acts.Return(2, "a", (2, 1), (), 0, 0),
        acts.Preempt(2, "a", "b"),
        acts.Close(3, "a", 5, "abort"),
    )
    assert live.ended["a"].tables == ((), ())


def test_an_eviction_is_explained_with_its_age() -> None:
    lookup = Lookup(7, "a", LookupKind.FIRST, 5, 0, (Miss(MissReason.EVICTED, 4, 0, 3, "b"),))
    live = Live(WATCHED)
    live.take(Picture(time=100.0, snapshot=two_groups(), lookups={"a": lookup}, times={1: 50.0, 3: 59.0, 7: 99.0}))
    assert str(live.explanation("a")) == "a: asked 5 tokens, hit 0 (step 7); block 0 was evicted at step 3 for b."
    assert live.explanation("a").ended
    assert live.age(3, now=100.0) == 41.0
    assert live.age(0, now=100.0) is None


def test_the_past_is_bounded() -> None:
    live = live_after()
    for number in range(REMEMBERED_REQUESTS + 50):
        name = f"r{number}"
        opened, closed = acts.Open(1, name, 5, b""), acts.Close(1, name, 5, "abort")
        asked = Lookup(1, name, LookupKind.FIRST, 5, 0, (Miss(MissReason.SHORT, 5, 0),))
        live.take(Step(seq=2 + number, time=101.0, acts=(opened, asked, closed)))
    assert len(live.ended) == len(live.lookups) == REMEMBERED_REQUESTS
    assert "r0" not in live.ended


def test_before_the_first_picture_nothing_is_known() -> None:
    live = Live(WATCHED)
    assert not live.ready
    with pytest.raises(StreamError, match="has not shown a picture of itself yet"):
        _ = live.snapshot


def test_acts_that_cannot_follow_are_refused() -> None:
    with pytest.raises(JournalError, match="names 'ghost', which no earlier act opened"):
        live_after(acts.Close(1, "ghost", 5, "abort"))
