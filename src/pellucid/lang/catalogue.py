"""The sentences in other languages, and which language a person reads."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Any

import msgspec

from pellucid.lang.sentence import Sentence

LANGUAGES = ("en", "ko", "zh")


@cache
def catalogue(language: str) -> Mapping[str, str]:
    """English template to template in ``language``; empty for English."""
    if language == "en":
        return {}
    text = files("pellucid.lang").joinpath(f"{language}.json").read_text(encoding="utf-8")
    templates: dict[str, str] = json.loads(text)
    return templates


def told(text: str, language: str) -> str:
    """``text`` in ``language``: a `Sentence` is translated with the values in it, any other string stays as it is.

    A sentence that the catalogue lacks stays English.
    """
    if not isinstance(text, Sentence):
        return text
    template = catalogue(language).get(text.template, text.template)
    return template.format(**{name: _value(value, language) for name, value in text.values.items()})


def encoded(value: Any, language: str = "en") -> str:
    """``value`` as JSON, on one line, with its sentences in ``language``."""

    def tell(sentence: Any) -> str:
        if not isinstance(sentence, Sentence):
            raise NotImplementedError(f"no JSON for a {type(sentence).__name__}")
        return told(sentence, language)

    return msgspec.json.encode(value, enc_hook=tell).decode()


def _value(value: Any, language: str) -> Any:
    return told(value, language) if isinstance(value, str) else value


def preferred_language() -> str:
    """What the environment asks for (LC_ALL, LC_MESSAGES, LANG, in that order), English where there is no telling."""
    for name in ("LC_ALL", "LC_MESSAGES", "LANG"):
        if setting := os.environ.get(name):
            language = setting.split("_")[0].split(".")[0].lower()
            return language if language in LANGUAGES else "en"
    return "en"
