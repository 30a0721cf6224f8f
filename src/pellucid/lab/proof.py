"""Verdicts, and what a claim has to show for one."""

from __future__ import annotations

import enum
from typing import Any

from msgspec import Struct

from pellucid.kv.snapshot import Snapshot
from pellucid.lang import Sentence, say


class Verdict(enum.StrEnum):
    """A claim whose situation did not arise is not observable, never proved."""

    PROVED = "proved"
    REFUTED = "refuted"
    NOT_OBSERVABLE = "not observable"

    @property
    def word(self) -> Sentence:
        """For a reader; the value is for a program."""
        return _WORDS[self]


_WORDS = {
    Verdict.PROVED: say("proved"),
    Verdict.REFUTED: say("refuted"),
    Verdict.NOT_OBSERVABLE: say("not observable"),
}


class Exhibit(Struct, frozen=True):
    """A picture to look at: the accounting at one moment."""

    title: str
    snapshot: Snapshot


class Table(Struct, frozen=True):
    """Rows of cells under a heading, each as long as ``header``; numbers come formatted."""

    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


class Finding(Struct, frozen=True):
    """What judging a claim came to.

    ``reason`` is one sentence; ``scope`` says how much was looked at; ``tables`` and ``facts`` are the
    numbers that decide, for a reader; ``evidence`` is the same and more, for a program: plain JSON
    values, names and numbers only. What a person reads is made with `pellucid.lang.say`.
    """

    verdict: Verdict
    reason: str
    scope: str = ""
    facts: tuple[tuple[str, str], ...] = ()
    evidence: dict[str, Any] = {}
    exhibits: tuple[Exhibit, ...] = ()
    tables: tuple[Table, ...] = ()


class Proof(Finding, frozen=True, kw_only=True):
    """A finding about the claim ``id``."""

    id: str
    title: str
    sentence: str

    def __repr__(self) -> str:
        return f"<Proof of {self.id!r}: {self.verdict}. {self.reason}>"


def refuted(reason: str, **shown: Any) -> Finding:
    return Finding(Verdict.REFUTED, reason, **shown)


def not_observable(reason: str, **shown: Any) -> Finding:
    return Finding(Verdict.NOT_OBSERVABLE, reason, **shown)
