"""Requests of many lengths."""

from __future__ import annotations

from pellucid.lab.recorder import Recorder, tokens
from pellucid.lab.scenario import PLAIN, Scenario
from pellucid.lang import say

STOPPED = "medium"


def play_mixed(recorder: Recorder) -> None:
    """Short and long prompts, prompts at the edge of a block, late arrivals, one that is stopped, and a second wave."""
    size, usable = recorder.snapshot.pool.block_size, recorder.snapshot.pool.usable
    long = min(21 * size + 1, max(usable // 3, 1) * size)
    early = {"short": (size * 3 // 8, 20), STOPPED: (3 * size + size // 2, 40), "long": (long, 8)}
    late = {"one less": (size - 1, 4), "exact": (size, 4), "one more": (size + 1, 4)}
    _add_all(recorder, early)
    recorder.step()
    recorder.step()
    _add_all(recorder, late)
    for _ in range(6):
        recorder.step()
    if not recorder.ended(STOPPED):
        recorder.abort(STOPPED)
    recorder.until_ended("short")
    _add_all(recorder, {"again": (2 * size + size // 4, 12), "brief": (size // 2, 4), "growing": (1, 18)})
    recorder.until_ended(*recorder.requests)
    recorder.drain()


def _add_all(recorder: Recorder, lengths: dict[str, tuple[int, int]]) -> None:
    about = recorder.about
    for name, (length, output) in lengths.items():
        output = min(output, about.max_model_len // 2)
        length = max(1, min(length, about.max_model_len - output))
        recorder.add(name, tokens(about.vocab_size, name, length), output)


MIXED = Scenario("mixed", say("requests of many lengths"), PLAIN, play_mixed)
