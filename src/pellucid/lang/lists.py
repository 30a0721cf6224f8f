"""Several of a kind in one sentence: what stands between them is said in each language, too."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import reduce

from pellucid.lang.sentence import say


def sentences(parts: Iterable[str]) -> str:
    """One whole sentence after another."""
    return reduce(lambda before, after: say("{before} {after}", before=before, after=after), parts)


def clauses(parts: Iterable[str]) -> str:
    """Parts of one sentence, between semicolons."""
    return reduce(lambda before, after: say("{before}; {after}", before=before, after=after), parts)


def phrases(parts: Iterable[str]) -> str:
    """Parts of one sentence, between commas."""
    return reduce(lambda before, after: say("{before}, {after}", before=before, after=after), parts)


def names_of(names: Sequence[str]) -> str:
    """``a``, ``a and b``, ``a, b and c``."""
    *others, last = names
    if not others:
        return last
    return say(
        "{names} and {last}", names=reduce(lambda a, b: say("{names}, {name}", names=a, name=b), others), last=last
    )
