"""What the stand-in lacks: an error that names it, and says what there is instead."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NoReturn

from pellucid.errors import NotCovered


class UncoveredAttribute(NotCovered, AttributeError):
    """A name that vLLM may have and the stand-in has not; ``hasattr`` says no, as it should."""


class UncoveredModule(NotCovered, ImportError):
    """A module of vLLM, or a name imported from one, that the stand-in has not."""


class Part:
    """A stand-in for one object of vLLM. ``_path`` is how a script reaches it."""

    _path = "vllm"

    def __getattr__(self, name: str) -> NoReturn:
        raise UncoveredAttribute(lacking(f"{self._path}.{name}", dir(self)))


def lacking(name: str, there: Iterable[str]) -> str:
    """The sentence for a ``name`` that is not covered, where ``there`` are the names beside it that are."""
    public = sorted(other for other in there if not other.startswith("_"))
    return f"{name} is not covered by `pellucid run`; covered there: {', '.join(public)}."


def is_neutral(value: object, default: object = None) -> bool:
    """Whether ``value`` of an option that we lack asks for nothing: its ``default``, None, or something empty.

    An option without a default is a wish for something more, so False asks for nothing; 0 does (``logprobs=0``).
    """
    empty = isinstance(value, str | list | tuple | dict) and not value
    return value is None or empty or (default is None and value is False) or bool(value == default)


def refuse(where: str, given: Mapping[str, Any]) -> None:
    """Raise `NotCovered` for the first of the ``given`` arguments that asks for something."""
    for name, value in given.items():
        if not is_neutral(value):
            raise NotCovered(f"{where} with {name}={value!r} is not covered by `pellucid run`; leave {name} out.")
