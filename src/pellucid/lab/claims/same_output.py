"""Comparing what requests answered in two recordings."""

from __future__ import annotations

from collections.abc import Iterable

from pellucid.lab.proof import Finding, not_observable, refuted
from pellucid.lab.recording import Recording
from pellucid.lang import Sentence, say


def different_output(run: Recording, reference: Recording, names: Iterable[str], where: Sentence) -> Finding | None:
    """None if each of ``names`` answered the same tokens in both; else the finding. ``where`` the reference ran.

    Without an answer to compare, or in a precision in which rounding may decide between two tokens,
    a difference proves nothing.
    """
    for name in names:
        if run.requests.get(name) != reference.requests.get(name):
            return not_observable(
                say("{name} asked something else {where}, so there is no output to compare.", name=name, where=where)
            )
        mine, theirs = (recording.outputs.get(name) for recording in (run, reference))
        if mine is None or theirs is None or not (mine.finished and theirs.finished):
            return not_observable(
                say("{name} did not finish in both runs, so there is no output to compare.", name=name)
            )
        if mine.tokens == theirs.tokens:
            continue
        at = next(
            (i for i, (one, other) in enumerate(zip(mine.tokens, theirs.tokens, strict=False)) if one != other),
            min(len(mine.tokens), len(theirs.tokens)),
        )
        what = say("Output token {at} of {name} differs from the one {where}", at=at, name=name, where=where)
        return _judged(what, mine.tokens, theirs.tokens, (run, reference))
    return None


def different_answers(run: Recording, names: Iterable[str]) -> Finding | None:
    """None if all of ``names``, which asked the same, were answered the same in one recording; else the finding."""
    first, *others = names
    theirs = run.outputs.get(first)
    for name in others:
        mine = run.outputs.get(name)
        if mine is None or theirs is None or not (mine.finished and theirs.finished):
            return not_observable(
                say("{name} or {first} did not finish, so there is no output to compare.", name=name, first=first)
            )
        if mine.tokens != theirs.tokens:
            what = say("{name} asked the same as {first} and was answered otherwise", name=name, first=first)
            return _judged(what, mine.tokens, theirs.tokens, (run,))
    return None


def _judged(what: Sentence, mine: tuple[int, ...], theirs: tuple[int, ...], runs: tuple[Recording, ...]) -> Finding:
    if all(run.about.exact for run in runs):
        return refuted(say("{what}: {mine} and {theirs}.", what=what, mine=list(mine), theirs=list(theirs)))
    return not_observable(
        say(
            "{what}; in {dtype} rounding alone can do that, so it is no evidence: run in float32 (--dtype).",
            what=what,
            dtype=runs[0].about.dtype,
        )
    )
