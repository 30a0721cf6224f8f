"""Sentences: ordinary strings that remember what they were made of."""

from __future__ import annotations

import copy
import json
import pickle

import msgspec
import pytest

from pellucid.lang import clauses, encoded, names_of, phrases, preferred_language, say, sentences, told
from pellucid.lang.catalogue import catalogue


@pytest.fixture
def catalogues(monkeypatch: pytest.MonkeyPatch) -> None:
    words = {
        "{n:,} blocks": "블록 {n:,}개",
        "{what} of {name}": "{name}: {what}",
        "{before}; {after}": "{before} / {after}",
    }
    monkeypatch.setattr("pellucid.lang.catalogue.catalogue", lambda language: words if language == "ko" else {})


def test_a_sentence_is_its_english() -> None:
    sentence = say("{n:,} blocks", n=1234)
    assert sentence == "1,234 blocks"
    assert (sentence.template, sentence.values) == ("{n:,} blocks", {"n": 1234})


def test_a_value_that_is_missing_is_noticed_at_once() -> None:
    with pytest.raises(KeyError, match="name"):
        say("{name} ended")


@pytest.mark.usefixtures("catalogues")
def test_telling_reaches_the_sentences_within() -> None:
    outer = say("{what} of {name}", what=say("{n:,} blocks", n=1234), name="R1")
    assert outer == "1,234 blocks of R1"
    assert told(outer, "ko") == "R1: 블록 1,234개"
    assert told(outer, "en") == outer
    assert told(clauses([outer, say("{n:,} blocks", n=2)]), "ko") == "R1: 블록 1,234개 / 블록 2개"


@pytest.mark.usefixtures("catalogues")
def test_what_the_catalogue_lacks_and_what_is_no_sentence_stay() -> None:
    assert told(say("{n} tokens", n=3), "ko") == "3 tokens"
    assert told("3 blocks", "ko") == "3 blocks"


@pytest.mark.usefixtures("catalogues")
def test_json_tells_sentences_and_refuses_what_it_does_not_know() -> None:
    value = {"reason": say("{n:,} blocks", n=2), "name": "R1", "blocks": (1, 2)}
    assert json.loads(encoded(value)) == {"reason": "2 blocks", "name": "R1", "blocks": [1, 2]}
    assert msgspec.json.decode(encoded(value, "ko"))["reason"] == "블록 2개"
    with pytest.raises(NotImplementedError, match="no JSON for a object"):
        encoded({"reason": object()})


def test_copies_are_sentences() -> None:
    sentence = say("{n:,} blocks", n=2)
    for other in (copy.deepcopy(sentence), pickle.loads(pickle.dumps(sentence))):
        assert (other, other.template, other.values) == (sentence, sentence.template, sentence.values)


def test_several_of_a_kind() -> None:
    assert [names_of(names) for names in (["a"], ["a", "b"], ["a", "b", "c", "d"])] == ["a", "a and b", "a, b, c and d"]
    assert (sentences(["A.", "B."]), clauses(["a", "b"]), phrases(["a"])) == ("A. B.", "a; b", "a")
    assert told(names_of(["a", "b", "c"]), "zh") == "a、b 和 c"


@pytest.mark.parametrize(
    ("environment", "language"),
    [
        ({"LC_ALL": "ko_KR.UTF-8", "LANG": "zh_CN.UTF-8"}, "ko"),
        ({"LC_ALL": "", "LC_MESSAGES": "zh_CN", "LANG": "ko_KR.UTF-8"}, "zh"),
        ({"LANG": "ko"}, "ko"),
        ({"LC_ALL": "C.UTF-8", "LANG": "ko_KR.UTF-8"}, "en"),
        ({"LANG": "fr_FR.UTF-8"}, "en"),
        ({}, "en"),
    ],
)
def test_the_environment_names_the_language(
    environment: dict[str, str], language: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("LC_ALL", "LC_MESSAGES", "LANG"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert preferred_language() == language


def test_english_needs_no_catalogue() -> None:
    assert catalogue("en") == {}
