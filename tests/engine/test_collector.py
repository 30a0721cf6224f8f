"""While an engine generates, the collector leaves its blocks alone, and afterwards all is as it was."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from pellucid import LLM, SamplingParams
from pellucid.engine.collector import RARER, undisturbed
from pellucid.kv.block import Block

SAMPLING = SamplingParams(temperature=0, max_tokens=4, ignore_eos=True)


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    assert not gc.get_freeze_count()
    thresholds = gc.get_threshold()
    yield
    gc.unfreeze()
    gc.set_threshold(*thresholds)


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
    assert not gc.get_freeze_count()


def test_an_error_ends_it_too(monkeypatch: pytest.MonkeyPatch) -> None:
    llm = LLM("tiny", num_gpu_blocks_override=20)
    monkeypatch.setattr(llm, "_advance", lambda ahead: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        llm.generate([[1, 2, 3]], SAMPLING, use_tqdm=False)
    assert not gc.get_freeze_count()


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
    with undisturbed():
        with undisturbed():
            pass
        assert gc.get_freeze_count()
    assert not gc.get_freeze_count()


def test_what_is_made_meanwhile_is_looked_through_less_often() -> None:
    young, *older = gc.get_threshold()
    with undisturbed():
        with undisturbed():
            pass
        assert gc.get_threshold() == (RARER * young, *older)
    assert gc.get_threshold() == (young, *older)


def test_a_threshold_that_a_caller_chooses_stays() -> None:
    with undisturbed():
        gc.set_threshold(1_234)
    assert gc.get_threshold()[0] == 1_234
    gc.set_threshold(0)  # never
    with undisturbed():
        assert gc.get_threshold()[0] == 0
    gc.freeze()
    gc.set_threshold(1_234)
    with undisturbed():
        assert gc.get_threshold()[0] == 1_234
