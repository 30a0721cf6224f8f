"""The tokenizer that a script gets: ours, under the names and with the defaults of Hugging Face's."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NoReturn

from pellucid import model
from pellucid.compat.uncovered import Part, refuse
from pellucid.errors import NotCovered


class Tokenizer(Part):
    _path = "tokenizer"

    def __init__(self, ours: model.Tokenizer) -> None:
        self._ours = ours

    def encode(self, text: str, add_special_tokens: bool = True, **options: Any) -> list[int]:
        refuse("tokenizer.encode", options)
        return self._ours.encode(text, add_special_tokens=add_special_tokens)

    def decode(self, token_ids: int | Sequence[int], skip_special_tokens: bool = False, **options: Any) -> str:
        refuse("tokenizer.decode", options)
        ids = [token_ids] if isinstance(token_ids, int) else list(token_ids)
        return self._ours.decode(ids, skip_special_tokens=skip_special_tokens)

    def apply_chat_template(
        self,
        conversation: Iterable[Mapping[str, Any]],
        *,
        tokenize: bool = True,
        add_generation_prompt: bool = False,
        return_tensors: str | None = None,
        return_dict: bool = False,
        **variables: Any,
    ) -> str | list[int]:
        """Text with ``tokenize=False``, else token ids; ``variables`` go to the template."""
        refuse("tokenizer.apply_chat_template", {"return_tensors": return_tensors, "return_dict": return_dict})
        text = self._ours.apply_chat_template(conversation, add_generation_prompt=add_generation_prompt, **variables)
        return self._ours.encode(text, add_special_tokens=False) if tokenize else text

    def __call__(self, *texts: Any, **options: Any) -> NoReturn:
        raise NotCovered(
            "tokenizer(text) is not covered by `pellucid run`; tokenizer.encode(text) gives its token ids."
        )

    def __len__(self) -> int:
        return self._ours.vocab_size

    @property
    def vocab_size(self) -> int:
        return self._ours.vocab_size

    @property
    def bos_token_id(self) -> int | None:
        return self._ours.bos_token_id

    @property
    def eos_token_id(self) -> int | None:
        return self._ours.eos_token_id

    @property
    def eos_token(self) -> str | None:
        return None if self.eos_token_id is None else self.decode(self.eos_token_id)
