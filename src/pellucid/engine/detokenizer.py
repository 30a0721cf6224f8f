"""Token ids to text, as the tokens come, never half a character."""

from __future__ import annotations

from typing import Protocol

REPLACEMENT = "\ufffd"


class TextDecoder(Protocol):
    """The part of a tokenizer that is needed here."""

    def decode(self, ids: list[int], *, skip_special_tokens: bool = True) -> str: ...


class Detokenizer:
    """Grows one request's text as its tokens come.

    A token may depend on the ones before it (spaces at word starts) and may hold part of a
    character only, so a window of the last tokens is decoded again with the new ones, and nothing
    is given out while the window ends in an unfinished character. (The two offsets are the method
    of Hugging Face's text-generation-inference.)
    """

    def __init__(self, tokenizer: TextDecoder, *, skip_special_tokens: bool) -> None:
        self._decoder = tokenizer
        self._skip = skip_special_tokens
        self._seen = 0
        self._window = 0  # where the decoded window begins
        self._given = 0  # tokens whose text has been given out
        self.text = ""

    def catch_up(self, ids: list[int], *, last: bool = False) -> str:
        """Take what ``ids``, all tokens so far, has more than the last time; returns the text that adds.

        The text does not depend on how many tokens come at once. ``last`` flushes an unfinished character.
        """
        length = len(self.text)
        for end in range(len(ids), self._seen, -1):  # the newest may end in half a character
            if self._give(ids, end, last=last and end == len(ids)):
                break
        self._seen = len(ids)
        return self.text[length:]

    def _give(self, ids: list[int], end: int, *, last: bool) -> bool:
        """Give out the text of the tokens up to ``end``; False if there is none, or half a character at its end."""
        before = self._decode(ids[self._window : self._given])
        after = self._decode(ids[self._window : end])
        if len(after) <= len(before) or (after.endswith(REPLACEMENT) and not last):
            return False
        self._window, self._given = self._given, end
        self.text += after[len(before) :]
        return True

    def _decode(self, ids: list[int]) -> str:
        return self._decoder.decode(ids, skip_special_tokens=self._skip)
