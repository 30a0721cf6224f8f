"""Two submissions never share state, whatever they are called.

Reported in vllm#10583, #15326, #23697 (PR #24382) and #27987, SkyRL#1250 and rllm#330: requests of one name whose
tables mix, an abort that ends the newer one, and names that are matched by their beginning.
"""

from __future__ import annotations

import pytest

from model_free import Bench
from pellucid.errors import DuplicateRequest, FinishedRequest, UnknownRequest

MODES = pytest.mark.parametrize("asynchronous", [False, True])


@MODES
def test_a_second_live_request_of_one_name_is_refused(asynchronous: bool) -> None:
    bench = Bench(num_blocks=12, asynchronous=asynchronous)
    first = bench.add("x", range(8), 4)
    for _ in range(2):
        before = bench.snapshot
        with pytest.raises(DuplicateRequest, match="'x'"):
            bench.add("x", range(50, 60), 4)
        assert bench.snapshot == before
        bench.step()
    bench.drain()
    assert bench.outputs[first.handle] == bench.expected[first.handle]


@MODES
@pytest.mark.parametrize("steps", [0, 1, 2, 3])
def test_an_aborted_name_may_be_used_before_the_next_step(asynchronous: bool, steps: int) -> None:
    bench = Bench(num_blocks=12, asynchronous=asynchronous)
    old = bench.add("x", range(8), 6, output=[1, 2, 3, 4, 5, 6])
    for _ in range(steps):
        bench.step()
    bench.abort("x")
    seen = list(bench.outputs[old.handle])
    new = bench.add("x", range(50, 59), 6, output=[11, 12, 13, 14, 15, 16])
    assert bench.table("x") == ()
    bench.drain()
    assert (old.finish_reason, new.finish_reason) == ("abort", "length")
    assert bench.outputs[old.handle] == seen == [1, 2, 3, 4, 5, 6][: len(seen)]
    assert bench.outputs[new.handle] == [11, 12, 13, 14, 15, 16]


@MODES
def test_a_name_is_not_the_beginning_of_another(asynchronous: bool) -> None:
    bench = Bench(num_blocks=12, asynchronous=asynchronous)
    longer = bench.add("R1-b", range(50, 59), 6)
    shorter = bench.add("R1", range(8), 6)
    bench.step()
    assert bench.table("R1") == shorter.table.ids
    assert bench.table("R1-b") == longer.table.ids
    assert not set(shorter.table.ids) & set(longer.table.ids)
    assert bench.snapshot.request("R1").name == "R1"
    assert bench.abort("R1") is shorter
    bench.drain()
    assert bench.outputs[longer.handle] == bench.expected[longer.handle]


def test_a_name_that_never_was_is_an_error() -> None:
    bench = Bench(num_blocks=12)
    bench.add("x", range(8), 2)
    for ask in (bench.abort, bench.table, bench.kv.explain):
        with pytest.raises(UnknownRequest, match="'ghost'") as caught:
            ask("ghost")
        assert not isinstance(caught.value, FinishedRequest)
    bench.drain()


def test_a_name_that_is_gone_is_another_error() -> None:
    bench = Bench(num_blocks=12)
    bench.run("x", range(8), 2)
    with pytest.raises(FinishedRequest, match=r"'x' finished in step 2; its last table was \(1, 2, 3\)"):
        bench.abort("x")


def test_the_inner_handle_is_no_name() -> None:
    bench = Bench(num_blocks=12)
    sequence = bench.add("x", range(8), 2)
    with pytest.raises(UnknownRequest):
        bench.abort(str(sequence.handle))
    bench.drain()
    assert sequence.finish_reason == "length"
