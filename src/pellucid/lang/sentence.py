"""A sentence that can be said in other languages: an English template and the values to put in."""

from __future__ import annotations

from typing import Any


class Sentence(str):
    """English as it stands, and what it was made of.

    It is an ordinary string wherever nobody asks for another language; `told` asks. ``values`` may
    themselves be sentences, which are told first.
    """

    template: str
    values: dict[str, Any]

    def __new__(cls, template: str, values: dict[str, Any]) -> Sentence:
        """Raises `KeyError` for a template that names a value which is not there."""
        sentence = super().__new__(cls, template.format(**values))
        sentence.template, sentence.values = template, values
        return sentence

    def __getnewargs__(self) -> tuple[str, dict[str, Any]]:  # type: ignore[override]  # what copy and pickle ask for
        return self.template, self.values


def say(template: str, /, **values: Any) -> Sentence:
    """``template`` with ``values`` put in as by `str.format`: ``say("{n:,} blocks", n=80)``.

    The template, as written here, is the key under which a catalogue holds its translations, so it must
    be a literal: numbers and names come in as values and are the same in every language.
    """
    return Sentence(template, values)
