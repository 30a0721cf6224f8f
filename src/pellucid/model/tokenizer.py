"""Text to token ids and back: what every tokenizer offers, and the one that Hugging Face's tokenizers runs."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pellucid.errors import ModelError, RequestError
from pellucid.model.safetensors import read_json

if TYPE_CHECKING:
    import tokenizers

    from pellucid.model.chat import ChatTemplate

SPECIAL_ROLES = ("bos_token", "eos_token", "unk_token", "pad_token", "sep_token", "cls_token", "mask_token")


class Tokenizer(ABC):
    """Text to token ids and back. ``vocab_size`` counts all ids, added tokens too."""

    vocab_size: int
    bos_token_id: int | None
    eos_token_id: int | None

    def __init__(self, chat_template: str | None, special_tokens: Mapping[str, str]) -> None:
        self._chat_source, self._special_tokens = chat_template, special_tokens
        self._chat: ChatTemplate | None = None

    @abstractmethod
    def encode(self, text: str, *, add_special_tokens: bool = True) -> list[int]:
        """Token ids of ``text``; special tokens written out in it become their ids.

        ``add_special_tokens`` puts those around it that the model's tokenizer asks for, if any.
        """

    @abstractmethod
    def decode(self, ids: Sequence[int], *, skip_special_tokens: bool = True) -> str:
        """Text of ``ids``; bytes that are not (yet) UTF-8 come out as U+FFFD."""

    def apply_chat_template(
        self, messages: Iterable[Mapping[str, Any]], *, add_generation_prompt: bool = True, **extra: Any
    ) -> str:
        """One prompt for a conversation, special tokens written out (encode it with add_special_tokens=False).

        Raises `ModelError` if the model has no chat template, `RequestError` if the template refuses.
        """
        if self._chat_source is None:
            raise ModelError("This model has no chat template; give a prompt as text or token ids instead of messages.")
        if self._chat is None:
            from pellucid.model.chat import ChatTemplate  # here, because a start without a chat need not read Jinja

            self._chat = ChatTemplate(self._chat_source, self._special_tokens)
        return self._chat.render(messages, add_generation_prompt=add_generation_prompt, **extra)


class FastTokenizer(Tokenizer):
    """A tokenizer that the ``tokenizers`` library runs. ``special_tokens`` gives roles (``bos_token``) their text."""

    def __init__(
        self, backend: tokenizers.Tokenizer, *, chat_template: str | None, special_tokens: Mapping[str, str]
    ) -> None:
        super().__init__(chat_template, special_tokens)
        self._backend = backend
        self.vocab_size = backend.get_vocab_size(with_added_tokens=True)
        self.bos_token_id = self._id_of("bos_token")
        self.eos_token_id = self._id_of("eos_token")

    def _id_of(self, role: str) -> int | None:
        text = self._special_tokens.get(role)
        return None if text is None else self._backend.token_to_id(text)

    def encode(self, text: str, *, add_special_tokens: bool = True) -> list[int]:
        try:
            return self._backend.encode(text, add_special_tokens=add_special_tokens).ids
        except (TypeError, UnicodeEncodeError):
            raise RequestError("A prompt's text must be a string of valid Unicode, without lone surrogates.") from None

    def decode(self, ids: Sequence[int], *, skip_special_tokens: bool = True) -> str:
        return self._backend.decode(list(ids), skip_special_tokens=skip_special_tokens)

    def save(self, folder: Path) -> None:
        """Write it as the tokenizer of a Hugging Face folder, from which `from_folder` and transformers read it."""
        settings: dict[str, Any] = {"tokenizer_class": "PreTrainedTokenizerFast", "clean_up_tokenization_spaces": False}
        if self._chat_source is not None:
            settings["chat_template"] = self._chat_source
        self._backend.save(str(folder / "tokenizer.json"))
        text = json.dumps(settings | dict(self._special_tokens), ensure_ascii=False, indent=2)
        (folder / "tokenizer_config.json").write_text(text, encoding="utf-8")


def from_folder(folder: Path) -> FastTokenizer | None:
    """The tokenizer of a Hugging Face folder (tokenizer.json beside its settings), or None if it has none."""
    path = folder / "tokenizer.json"
    if not path.is_file():
        return None
    import tokenizers  # here, because a start without a tokenizer need not read it

    try:
        backend = tokenizers.Tokenizer.from_file(str(path))
    except Exception as error:  # the library raises plain Exception
        raise ModelError(f"{path} is not a tokenizer that the tokenizers library can read ({error}).") from None
    settings = _optional_json(folder / "tokenizer_config.json")
    written = {**_optional_json(folder / "special_tokens_map.json"), **settings}
    special = {role: _text(written[role]) for role in SPECIAL_ROLES if written.get(role)}
    backend.add_special_tokens([text for text in special.values() if backend.token_to_id(text) is not None])
    return FastTokenizer(backend, chat_template=_chat_template(folder, settings), special_tokens=special)


def _optional_json(path: Path) -> dict[str, Any]:
    return read_json(path) if path.is_file() else {}


def _text(token: str | Mapping[str, Any]) -> str:
    return token if isinstance(token, str) else str(token["content"])


def _chat_template(folder: Path, settings: Mapping[str, Any]) -> str | None:
    own_file = folder / "chat_template.jinja"
    if own_file.is_file():
        return own_file.read_text(encoding="utf-8")
    template = settings.get("chat_template")
    if isinstance(template, list):  # several, by name
        template = {entry["name"]: entry["template"] for entry in template}.get("default")
    return template
