"""The watermark keeps room for those that run; when nobody does, there is nobody to keep it for."""

from __future__ import annotations

from model_free import Bench


def test_a_request_that_needs_the_room_under_the_watermark_runs_when_nobody_else_does() -> None:
    bench = Bench(num_blocks=10, watermark=0.9)
    sequence = bench.add("a", range(36), 1)
    bench.step()
    assert sequence.finish_reason == "length"
