"""Every exception Pellucid raises on purpose.

One sentence with the numbers and the way out, raised before anything is allocated.
``PellucidError`` catches them all; the subclasses that describe a wrong argument are
also ``ValueError``s, and an unknown name is also a ``KeyError``, so that code written
for other engines keeps working.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class PellucidError(Exception):
    """Base of every exception that Pellucid raises on purpose."""


class ConfigError(PellucidError, ValueError):
    """An engine option is unknown, unsupported or does not fit with another."""


class RequestError(PellucidError, ValueError):
    """One request was refused. Nothing was allocated for it and no other request is affected."""


class DuplicateRequest(RequestError):
    """A live request already has this name."""


class UnknownRequest(PellucidError, KeyError):
    """No request of this name is, or (where said) was, known to the engine."""

    def __str__(self) -> str:  # KeyError would print the repr, quotes and all
        return str(self.args[0]) if self.args else ""


class FinishedRequest(UnknownRequest):
    """The request has finished; ``step`` and ``table`` say when and what it held last."""

    def __init__(self, message: str, step: int, table: tuple[int, ...]) -> None:
        super().__init__(message)
        self.step = step
        self.table = table


class SeveralGroups(PellucidError, ValueError):
    """A request was asked for its block table, and it has one for each of several KV groups."""


class ModelError(PellucidError):
    """A model cannot be had, read or run: missing, corrupt, truncated or unsupported."""


class ModelNotFound(ModelError):
    """There is no such model within reach: no such file, folder or name, and no network that gives it."""


class KernelError(PellucidError):
    """A kernel cannot be compiled for the device, or not be loaded there."""


class PageError(PellucidError, ValueError):
    """A page of a report cannot be written where it should go."""


class NotObservable(PellucidError):
    """An engine cannot be observed truthfully, so it is not observed. ``findings`` are all that was looked for."""

    def __init__(self, message: str, findings: tuple[str, ...] = ()) -> None:
        super().__init__(message)
        self.findings = findings


class InvariantViolation(PellucidError):
    """A checker found the block accounting in a state that must never exist."""


class MoveRefused(PellucidError, ValueError):
    """A block cannot be moved where it should go. Nothing was changed."""


class EngineStopped(PellucidError):
    """Something struck the engine in the middle of a step; it cannot go on."""


class MissingExtra(PellucidError, ImportError):
    """A part of Pellucid was asked for that the base package does not bring along."""


BROUGHT_BY = {
    "engine": ("torch", "numpy", "safetensors", "gguf", "huggingface_hub", "tokenizers", "jinja2"),
}


def missing_extra(error: ModuleNotFoundError) -> MissingExtra | None:
    """What to tell whoever installed the base package only and asked for more; None for any other module."""
    for extra, modules in BROUGHT_BY.items():
        if (error.name or "").partition(".")[0] in modules:
            return MissingExtra(f"{error.name} is not installed; run: pip install 'pellucid[{extra}]'.")
    return None


class JournalError(PellucidError, ValueError):
    """A journal file is damaged, of an unknown version, or asked for what it no longer holds."""


class StreamError(PellucidError):
    """An engine cannot be watched, or can no longer be: none is there, its door is shut, or the connection broke."""


class NotCovered(PellucidError, NotImplementedError):
    """A script asked the stand-in for something that Pellucid does not provide."""


def refuse_unknown_options(
    where: str, given: Iterable[str], known: Iterable[str], kind: type[PellucidError] = ConfigError
) -> None:
    """Raise ``kind`` naming the first option of ``given`` that is not ``known``, and its nearest."""
    names = list(known)
    for option in given:
        if option not in names:
            begun = [name for name in names if name.startswith(option)]
            near = begun or difflib.get_close_matches(option, names, n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"known options: {', '.join(sorted(names))}."
            raise kind(f"{where} has no option {option!r}; {hint}")
