"""Comparing what requests answered in two recordings."""

from __future__ import annotations

from collections.abc import Iterable

from pellucid.lab.proof import Finding, not_observable, refuted
from pellucid.lab.recording import Recording


def different_output(run: Recording, reference: Recording, names: Iterable[str], where: str) -> Finding | None:
    """None if each of ``names`` answered the same tokens in both; else the finding.

    Without an answer to compare, or in a precision in which rounding may decide between two tokens,
    a difference proves nothing.
    """
    for name in names:
        if run.requests.get(name) != reference.requests.get(name):
            return not_observable(f"{name} asked something else {where}, so there is no output to compare.")
        mine, theirs = (recording.outputs.get(name) for recording in (run, reference))
        if mine is None or theirs is None or not (mine.finished and theirs.finished):
            return not_observable(f"{name} did not finish in both runs, so there is no output to compare.")
        if mine.tokens == theirs.tokens:
            continue
        at = next(
            (i for i, (one, other) in enumerate(zip(mine.tokens, theirs.tokens, strict=False)) if one != other),
            min(len(mine.tokens), len(theirs.tokens)),
        )
        what = f"Output token {at} of {name} differs from the one {where}"
        if run.about.exact and reference.about.exact:
            return refuted(f"{what}: {list(mine.tokens)} and {list(theirs.tokens)}.")
        return not_observable(
            f"{what}; in {run.about.dtype} rounding alone can do that, so it is no evidence: run in float32 (--dtype)."
        )
    return None
