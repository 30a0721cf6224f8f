"""Hit counters: each lookup once, first admissions and resumes apart, numerator and denominator both there.

Reported in vllm#25780 (PR #25787) and #43736 (PR #48860), sendnn-inference#1030, TensorRT-LLM#12132,
vllm-ascend#16639 and inference-sim#1121.
"""

from __future__ import annotations

import random

import pytest

from model_free import Bench
from pellucid.kv import acts
from pellucid.kv.acts import LookupKind
from pellucid.kv.snapshot import HitCount

MODES = pytest.mark.parametrize("asynchronous", [False, True])


def hits(bench: Bench, kind: str) -> HitCount:
    return bench.snapshot.hits.get(LookupKind(kind), HitCount())


def shared_blocks(bench: Bench) -> int:
    return sum(len(act.blocks) for act in bench.kv.journal if isinstance(act, acts.Share))


@MODES
def test_unique_prompts_hit_nothing_and_resumes_count_apart(asynchronous: bool) -> None:
    rng = random.Random(25780)
    bench = Bench(num_blocks=13, asynchronous=asynchronous)
    sequences = [
        bench.add(f"r{i}", rng.sample(range(10_000), rng.randrange(5, 15)), rng.randrange(4, 14)) for i in range(50)
    ]
    bench.drain()
    first, resume = hits(bench, "first"), hits(bench, "resume")
    assert (first.requests, first.hit) == (50, 0)
    assert first.asked == sum(sequence.prompt_len for sequence in sequences)
    assert resume.requests == sum(isinstance(act, acts.Admit) for act in bench.kv.journal) - 50 > 0
    assert resume.hit > 0
    assert first.hit + resume.hit == 4 * shared_blocks(bench)
    assert sum(bench.snapshot.missed.values()) == first.asked + resume.asked - resume.hit


@MODES
def test_a_request_kept_waiting_is_counted_once(asynchronous: bool) -> None:
    bench = Bench(num_blocks=9, asynchronous=asynchronous)
    bench.run("warmer", range(8))
    before = hits(bench, "first")
    bench.add("full", range(100, 112), 20)
    bench.step()
    warm = bench.add("warm", range(17), 1)
    waited = 0
    while warm.table.status == "waiting":
        bench.step()
        waited += 1
    assert waited >= 19
    bench.drain()
    after = hits(bench, "first")
    assert after.requests == before.requests + 2
    assert after.asked == before.asked + 12 + 17
    assert after.hit - before.hit == bench.hit("warm")
    assert sum(isinstance(act, acts.Lookup) for act in bench.kv.journal) == 3


@MODES
@pytest.mark.parametrize("length", [16, 17, 19])
def test_eight_equal_prompts_hit_seven_times_the_full_blocks(asynchronous: bool, length: int) -> None:
    bench = Bench(num_blocks=60, asynchronous=asynchronous)
    sequences = [bench.add(f"r{i}", range(length), 2) for i in range(8)]
    bench.drain()
    per_request = (length - 1) // 4 * 4
    assert hits(bench, "first") == HitCount(8, 8 * length, 7 * per_request)
    assert [sequence.table.cached_tokens for sequence in sequences] == [0] + [per_request] * 7
    assert 7 * per_request == 4 * shared_blocks(bench)


@MODES
def test_traffic_before_counting_is_told_apart_by_two_snapshots(asynchronous: bool) -> None:
    bench = Bench(num_blocks=30, asynchronous=asynchronous)
    for number in range(3):
        bench.run(f"warm-up {number}", range(9))
    before = hits(bench, "first")
    bench.run("counted", range(9))
    after = hits(bench, "first")
    counted = (after.requests - before.requests, after.asked - before.asked, after.hit - before.hit)
    assert counted == (1, 9, 8)


@MODES
def test_a_bypass_is_neither_hit_nor_miss_of_a_first_admission(asynchronous: bool) -> None:
    bench = Bench(num_blocks=30, asynchronous=asynchronous)
    bench.run("warm", range(9))
    bench.run("bypass", range(9), skip_reading_prefix_cache=True)
    assert hits(bench, "first") == HitCount(1, 9, 0)
    assert hits(bench, "bypass") == HitCount(1, 9, 0)
    assert bench.snapshot.missed[acts.MissReason.BYPASS] == 9
