"""Token ids to text, one token at a time, never half a character."""

from __future__ import annotations

from typing import Protocol

REPLACEMENT = "\ufffd"


class TextDecoder(Protocol):
    """The part of a tokenizer that is needed here."""

    def decode(self, ids: list[int], *, skip_special_tokens: bool = True) -> str: ...


class Detokenizer:
    """Grows one request's text as its tokens come.

    A token may depend on the ones before it (spaces at word starts) and may hold part of a
    character only, so a window of the last tokens is decoded again with each new one, and nothing
    is given out while the window ends in an unfinished character. (The two offsets are the method
    of Hugging Face's text-generation-inference.)
    """

    def __init__(self, tokenizer: TextDecoder, *, skip_special_tokens: bool) -> None:
        self._decoder = tokenizer
        self._skip = skip_special_tokens
        self._ids: list[int] = []
        self._window = 0  # where the decoded window begins
        self._given = 0  # tokens whose text has been given out
        self.text = ""

    def add(self, token: int, *, last: bool = False) -> str:
        """Take one more token; returns the text it adds. ``last`` flushes an unfinished character."""
        self._ids.append(token)
        before = self._decode(self._window, self._given)
        after = self._decode(self._window, len(self._ids))
        if len(after) <= len(before) or (after.endswith(REPLACEMENT) and not last):
            return ""
        self._window, self._given = self._given, len(self._ids)
        delta = after[len(before) :]
        self.text += delta
        return delta

    def _decode(self, start: int, end: int) -> str:
        return self._decoder.decode(self._ids[start:end], skip_special_tokens=self._skip)
