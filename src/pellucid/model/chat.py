"""Chat templates: a conversation turned into one prompt by the model's own Jinja template, in a sandbox."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any, NoReturn

from jinja2 import TemplateError, nodes
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

from pellucid.errors import ModelError, RequestError


class _GenerationTag(Extension):
    """``{% generation %}`` marks the assistant's words for training; here its body is simply rendered."""

    tags = {"generation"}  # noqa: RUF012 (jinja2 declares it as an instance variable)

    def parse(self, parser: Parser) -> list[nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


def _raise_exception(message: str) -> NoReturn:
    raise TemplateError(message)


def _to_json(value: Any, ensure_ascii: bool = False, **options: Any) -> str:
    # Jinja's own filter escapes for HTML, which would change what the model reads.
    return json.dumps(value, ensure_ascii=ensure_ascii, **options)


class ChatTemplate:
    """A compiled template with what templates expect to find: the model's special tokens and a few helpers.

    ``tokens`` are names such as ``bos_token`` with their text. Raises `ModelError` if the template is not Jinja.
    """

    def __init__(self, source: str, tokens: Mapping[str, str]) -> None:
        environment = ImmutableSandboxedEnvironment(
            trim_blocks=True, lstrip_blocks=True, extensions=[_GenerationTag, loopcontrols]
        )
        environment.filters["tojson"] = _to_json
        environment.globals["raise_exception"] = _raise_exception
        environment.globals["strftime_now"] = lambda form: datetime.now().strftime(form)
        self._tokens = dict(tokens)
        try:
            self._template = environment.from_string(source)
        except TemplateError as error:
            raise ModelError(f"The model's chat template is not a valid Jinja template ({error}).") from None

    def render(self, messages: Iterable[Mapping[str, Any]], *, add_generation_prompt: bool, **extra: Any) -> str:
        """The prompt for ``messages`` (role and content each); ``extra`` names are passed to the template.

        Raises `RequestError` if the template refuses the conversation.
        """
        values = {"tools": None, "documents": None, **self._tokens, **extra}
        try:
            return self._template.render(messages=list(messages), add_generation_prompt=add_generation_prompt, **values)
        except (TemplateError, TypeError) as error:
            raise RequestError(f"The model's chat template refuses this conversation: {error}.") from None
