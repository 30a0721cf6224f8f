"""While an engine generates, the collector leaves its blocks alone, and afterwards all is as it was."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from pellucid import LLM, SamplingParams
from pellucid.engine.collector import MEANT, RARER, undisturbed
from pellucid.kv.block import Block

SAMPLING = SamplingParams(temperature=0, max_tokens=4, ignore_eos=True)


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    assert not frozen()
    thresholds = gc.get_threshold()
    yield
    gc.unfreeze()
    gc.set_threshold(*thresholds)


def frozen() -> bool:
    """Python 3.12 counts a few hundred objects of its own."""
    return gc.get_freeze_count() >= MEANT


def frozen_while_it_runs(monkeypatch: pytest.MonkeyPatch, llm: LLM) -> list[int]:
    """How many objects are frozen at each turn of a generation."""
    counts: list[int] = []
    advance = llm._advance
    monkeypatch.setattr(llm, "_advance", lambda ahead: counts.append(gc.get_freeze_count()) or advance(ahead))
    llm.generate([[1, 2, 3]], SAMPLING, use_tqdm=False)
    return counts


def test_what_is_there_is_frozen_while_steps_run(monkeypatch: pytest.MonkeyPatch) -> None:
    llm = LLM("tiny", num_gpu_blocks_override=5_000)
    assert min(frozen_while_it_runs(monkeypatch, llm)) > 5_000
    assert not frozen()


def test_an_error_ends_it_too(monkeypatch: pytest.MonkeyPatch) -> None:
    llm = LLM("tiny", num_gpu_blocks_override=20)
    monkeypatch.setattr(llm, "_advance", lambda ahead: 1 / 0)
    thresholds = gc.get_threshold()
    with pytest.raises(ZeroDivisionError):
        llm.generate([[1, 2, 3]], SAMPLING, use_tqdm=False)
    assert not frozen()
    assert gc.get_threshold() == thresholds


def test_what_a_caller_has_frozen_stays_frozen(monkeypatch: pytest.MonkeyPatch) -> None:
    llm = LLM("tiny", num_gpu_blocks_override=20)
    gc.freeze()
    before = gc.get_freeze_count()
    frozen_while_it_runs(monkeypatch, llm)
    assert gc.get_freeze_count() > before / 2  # those that are gone for good do not count


def test_an_engine_let_go_of_takes_its_blocks_along() -> None:
    llm = LLM("tiny", num_gpu_blocks_override=5_000)
    llm.generate([[1, 2, 3]], SAMPLING, use_tqdm=False)
    del llm
    gc.collect()
    assert sum(type(thing) is Block for thing in gc.get_objects()) < 5_000


def test_the_last_of_several_ends_it() -> None:
    young = gc.get_threshold()[0]
    first, second = undisturbed(), undisturbed()
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    assert frozen()
    assert gc.get_threshold()[0] == RARER * young
    second.__exit__(None, None, None)
    assert not frozen()
    assert gc.get_threshold()[0] == young


def test_what_is_made_meanwhile_is_looked_through_less_often() -> None:
    looked: list[object] = []
    gc.callbacks.append(lambda phase, info: looked.append(info))
    try:
        kept = [[i] for i in range(3_000)]
        often = len(looked)
        with undisturbed():
            gc.collect(0)
            looked.clear()
            kept += [[i] for i in range(3_000)]
            assert len(looked) < often
    finally:
        gc.callbacks.pop()


@pytest.mark.parametrize("young", [0, 1_234, 2**31 - 1])
def test_any_threshold_is_there_again(young: int) -> None:
    gc.set_threshold(young, 3, 4)
    with undisturbed():
        assert gc.get_threshold()[0] >= young
    assert gc.get_threshold()[:2] == (young, 3)


def test_thresholds_that_a_caller_chooses_stay() -> None:
    young = gc.get_threshold()[0]
    with undisturbed():
        gc.set_threshold(1_234)
    assert gc.get_threshold()[0] == 1_234
    gc.set_threshold(young)
    with undisturbed():
        gc.set_threshold(gc.get_threshold()[0], 3)
    assert gc.get_threshold()[:2] == (young, 3)
