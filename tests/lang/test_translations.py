"""Every sentence that the source can say is in every catalogue, with the same values and numbers in it."""

from __future__ import annotations

import ast
import json
import re
from collections import Counter

import pytest

from lang.templates import calls, fields, literals, templates
from pellucid.lang import LANGUAGES
from pellucid.lang.catalogue import catalogue

OTHERS = [language for language in LANGUAGES if language != "en"]


def test_a_template_is_a_literal_with_a_value_for_every_placeholder() -> None:
    for place, call in calls():
        (template,) = call.args
        assert isinstance(template, ast.Constant), f"{place}: the template must be a literal"
        assert isinstance(template.value, str), place
        assert {name for name, *_ in fields(template.value)} == {keyword.arg for keyword in call.keywords}, place


def test_no_value_is_english_text() -> None:
    for place, call in calls():
        for keyword in call.keywords:
            value = getattr(keyword.value, "value", None)
            assert not isinstance(value, str), f"{place}: {value!r} would stay English; make it a sentence too"


@pytest.mark.parametrize("language", OTHERS)
def test_every_template_is_translated_and_nothing_else(language: str) -> None:
    entries = catalogue(language)
    missing = {template: "" for template in templates() if template not in entries}
    lines = json.dumps(missing, ensure_ascii=False, indent=1)[1:-1]
    assert not missing, f"{len(missing)} templates have no entry in lang/{language}.json; to be filled in:{lines}"
    assert not entries.keys() - set(templates()), f"nobody says these entries of lang/{language}.json any more"
    assert all(entries.values())


@pytest.mark.parametrize("language", OTHERS)
def test_a_translation_has_the_placeholders_and_the_digits_of_its_template(language: str) -> None:
    for template, translation in catalogue(language).items():
        assert fields(translation) == fields(template), translation
        digits = [Counter(re.findall(r"\d", literals(text))) for text in (translation, template)]
        assert digits[0] == digits[1], translation


@pytest.mark.parametrize("language", OTHERS)
def test_spaces_at_either_end_are_kept(language: str) -> None:
    for template, translation in catalogue(language).items():
        ends = [(len(text) - len(text.lstrip()), len(text) - len(text.rstrip())) for text in (translation, template)]
        assert ends[0] == ends[1], translation


def test_korean_particles_fit_any_name() -> None:
    """No particle stands right after a name, unless in the form for both kinds of ending: 을(를)."""
    particles = re.compile(
        r"\{(?:name|by|other|one|first|owners|names|model|file|policy)(?:![rs])?\}(?:은|는|이|가|을|를|과|와|로|으로)\b(?!\()"
    )
    for translation in catalogue("ko").values():
        assert not particles.search(translation), translation


def test_chinese_has_the_marks_of_chinese() -> None:
    for template, translation in catalogue("zh").items():
        prose = re.sub(r"ceil\(.*?\)", "", translation)
        beside_han = re.search(r"[\u3400-\u9fff] ?[,;:.()!?]|[,;:()!?] ?[\u3400-\u9fff]", prose)
        assert not beside_han, f"{template}: {translation}"
