"""HTML as a tree. Text stays text until the tree is written, so nothing can get by unescaped.

The tree is also in no language yet: whatever was made with `pellucid.lang.say` is told in the one it is
written in.
"""

from __future__ import annotations

import html
import json
import re
from typing import Any, NamedTuple

from pellucid.lang import told

VOID = frozenset({"meta", "input"})
STEERING = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
"""What is not to be seen and turns text around, or cannot be written in UTF-8."""


class Element(NamedTuple):
    """``<name attributes>children</name>``."""

    name: str
    attributes: dict[str, Any]
    children: tuple[Node, ...]


class Raw(NamedTuple):
    """Written as it is: only for style sheets and scripts of this package."""

    text: str


class Json(NamedTuple):
    """Written as JSON that cannot end the script element it stands in."""

    value: Any


Node = Element | Raw | Json | str


def element(name: str, /, *children: Node, **attributes: Any) -> Element:
    """An element; ``class_`` and ``aria_label`` are written ``class`` and ``aria-label``.

    An attribute that is None or False is left out, True stands without a value.
    """
    return Element(name, {key.rstrip("_").replace("_", "-"): value for key, value in attributes.items()}, children)


def written(node: Node, language: str = "en") -> str:
    """``node`` as HTML, told in ``language``."""
    if isinstance(node, Raw):
        return node.text
    if isinstance(node, Json):
        return _json(node.value, language)
    if isinstance(node, str):
        return _escaped(node, language)
    attributes = "".join(_attribute(name, value, language) for name, value in node.attributes.items())
    start = f"<{node.name}{attributes}>"
    if node.name in VOID:
        return start
    return start + "".join(written(child, language) for child in node.children) + f"</{node.name}>"


def _attribute(name: str, value: Any, language: str) -> str:
    if value is None or value is False:
        return ""
    return (
        f" {name}"
        if value is True
        else f' {name}="{_escaped(value if isinstance(value, str) else str(value), language)}"'
    )


def _escaped(text: str, language: str) -> str:
    return html.escape(STEERING.sub("\ufffd", told(text, language)))


def _json(value: Any, language: str) -> str:
    """``<``, ``>`` and ``&`` only occur inside strings, where an escape says the same."""
    text = json.dumps(_told(value, language), separators=(",", ":"))
    return text.replace("<", r"\u003c").replace(">", r"\u003e").replace("&", r"\u0026")


def _told(value: Any, language: str) -> Any:
    if isinstance(value, str):
        return STEERING.sub("\ufffd", told(value, language))
    if isinstance(value, dict):
        return {key: _told(each, language) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_told(each, language) for each in value]
    return value
