"""An `LLM` can be watched from another process, if it is asked to."""

from __future__ import annotations

import gc
from collections.abc import Callable
from pathlib import Path

import pytest

from pellucid import LLM, SamplingParams
from pellucid.errors import StreamError
from pellucid.stream.live import Live
from pellucid.stream.places import engines
from pellucid.stream.reader import connect

PROMPTS = [[1, 2, 3, 4] * 8, [1, 2, 3, 4] * 9, [5, 6] * 20]


@pytest.fixture(autouse=True)
def _runtime(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PELLUCID_RUNTIME_DIR", str(tmp_path))
    monkeypatch.delenv("PELLUCID_OBSERVE", raising=False)


def watched_while_it_generates(llm: LLM) -> None:
    with connect() as reader:
        live = Live(reader.hello.watched)
        picture = reader.next(30)
        assert picture is not None
        live.take(picture)
        outputs = llm.generate(
            [{"prompt_token_ids": prompt} for prompt in PROMPTS],
            SamplingParams(temperature=0, max_tokens=8),
            use_tqdm=False,
        )
        while live.snapshot.acts < len(llm.kv.journal):
            message = reader.next(30)
            assert message is not None
            live.take(message)
    shown, truth = live.snapshot.pool, llm.kv.snapshot().pool
    assert live.snapshot.requests == llm.kv.snapshot().requests
    assert (shown.states, shown.owners, shown.reuse_order) == (truth.states, truth.owners, truth.reuse_order)
    assert not {*filter(None, shown.identities)} & {*filter(None, truth.identities)}  # they are hashes of prompts
    assert [live.ended[output.request_id].reason for output in outputs] == ["length"] * 3
    assert str(live.explanation(outputs[1].request_id)) == str(llm.kv.explain(outputs[1].request_id))


def test_an_engine_can_be_watched(engine: Callable[..., LLM]) -> None:
    llm = engine(observe=True)
    assert [(watched.model, watched.engine.split()[0]) for watched in engines()] == [("tiny", "pellucid")]
    watched_while_it_generates(llm)
    del llm
    gc.collect()
    assert engines() == []


def test_the_environment_says_whether(engine: Callable[..., LLM], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PELLUCID_OBSERVE", "1")
    hidden = engine(observe=False)
    assert engines() == []
    watched_while_it_generates(engine())
    del hidden


def test_nobody_is_let_in_unasked(engine: Callable[..., LLM]) -> None:
    llm = engine()
    assert engines() == []
    llm.generate([{"prompt_token_ids": PROMPTS[0]}], SamplingParams(temperature=0, max_tokens=2), use_tqdm=False)


def test_an_engine_that_cannot_be_shown_says_so(engine: Callable[..., LLM], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PELLUCID_LISTEN", "127.0.0.1:0")
    monkeypatch.delenv("PELLUCID_TOKEN", raising=False)
    with pytest.raises(StreamError, match="needs a token of at least 16 characters in PELLUCID_TOKEN"):
        engine(observe=True)
