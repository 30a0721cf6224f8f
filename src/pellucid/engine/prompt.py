"""The forms in which a prompt may be given."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from pellucid.errors import RequestError

KEYS = ("prompt", "prompt_token_ids", "cache_salt")


class Encoder(Protocol):
    """The part of a tokenizer that is needed here."""

    def encode(self, text: str) -> list[int]: ...


class Prompt(NamedTuple):
    """A prompt as token ids, with its text if it came as text, and its cache salt if it has one."""

    tokens: tuple[int, ...]
    text: str | None
    salt: str | None


def parse(prompt: Any, tokenizer: Encoder | None) -> Prompt:
    """A string, token ids, or a mapping with ``prompt`` or ``prompt_token_ids`` (and ``cache_salt``).

    Raises `RequestError` for anything else, or for text without a tokenizer.
    """
    salt = None
    if isinstance(prompt, Mapping):
        if wrong := [key for key in prompt if key not in KEYS]:
            raise RequestError(f"a prompt has no field {wrong[0]!r}; known fields: {', '.join(KEYS)}.")
        salt = prompt.get("cache_salt")
        if not isinstance(salt, str | None):
            raise RequestError(f"cache_salt must be a string, not {salt!r}.")
        prompt = prompt.get("prompt_token_ids", prompt.get("prompt"))
    if isinstance(prompt, str):
        if tokenizer is None:
            raise RequestError("this engine has no tokenizer; give the prompt as token ids.")
        return Prompt(tuple(tokenizer.encode(prompt)), prompt, salt)
    if is_token_ids(prompt):
        return Prompt(tuple(prompt), None, salt)
    raise RequestError(f"a prompt is a string, a list of token ids or a mapping of these, not {type(prompt).__name__}.")


def is_token_ids(prompt: Any) -> bool:
    """Whether ``prompt`` is a sequence that begins as token ids do. (The scheduler looks at all of them.)"""
    if not isinstance(prompt, Sequence) or isinstance(prompt, str | bytes):
        return False
    return not prompt or type(prompt[0]) is int


def conversations(messages: Any) -> list[list[Mapping[str, Any]]]:
    """One conversation or many, as a list of conversations. Raises `RequestError` for anything else."""
    if is_conversation(messages):
        return [list(messages)]
    if isinstance(messages, Sequence) and messages and all(is_conversation(each) for each in messages):
        return [list(each) for each in messages]
    raise RequestError(
        f'messages are a list of {{"role": ..., "content": ...}}, or a list of such lists, not {messages!r}.'
    )


def is_conversation(messages: Any) -> bool:
    return (
        isinstance(messages, Sequence)
        and len(messages) > 0
        and all(isinstance(message, Mapping) and {"role", "content"} <= message.keys() for message in messages)
    )


def listed(prompts: Any) -> list[Any]:
    """One prompt or many, as a list. An empty list is no prompts."""
    if isinstance(prompts, str | Mapping) or (is_token_ids(prompts) and len(prompts)):
        return [prompts]
    if isinstance(prompts, Iterable) and not isinstance(prompts, bytes):
        return list(prompts)
    raise RequestError(f"prompts are one prompt or a list of them, not {type(prompts).__name__}.")
