"""The soak: round after round of random load until time is up or something is wrong."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import msgspec
from msgspec import Struct

from pellucid import __version__
from pellucid.errors import ConfigError
from pellucid.lab.bed import Bed, Reference
from pellucid.lab.load import Case, draw
from pellucid.lab.round import Failure, Kind, Round, Tally
from pellucid.lab.shrink import Shrinker
from pellucid.lang import Sentence, say

Progress = Callable[[str], None]
Draw = Callable[[str, int, int], Case]
"""Makes the case of a model, a seed and the number of a round."""

SHRINKING_S = 300
"""Seconds after which a case is small enough, on a model that takes long."""


class Finding(Struct, frozen=True, kw_only=True):
    """A failure, the round of the soak in which it showed, and the smallest case found that fails alike."""

    pellucid: str
    seed: int
    round: int
    failure: Failure
    case: Case


class SoakReport(Struct, frozen=True, kw_only=True):
    """What a soak came to. ``seconds`` it ran, without the shrinking."""

    model: str
    seed: int
    seconds: float
    tally: Tally
    finding: Finding | None

    @property
    def exit_status(self) -> int:
        """0 if nothing was found, else 1."""
        return 1 if self.finding else 0


def soak(
    model: str,
    bed: Bed,
    seed: int,
    *,
    seconds: float,
    rounds: int | None = None,
    progress: Progress = lambda line: None,
    draw: Draw = draw,
    reference: Reference | None = None,
) -> SoakReport:
    """Play rounds of ``model`` on ``bed`` for ``seconds``, ``rounds`` of them at most; stop at the first failure.

    ``reference`` says what each request must come to, by default another engine of ``bed``.
    """
    tally, reference, finding = Tally(), reference or Reference(bed), None
    begin = time.monotonic()
    while (elapsed := time.monotonic() - begin) < seconds and tally.rounds != rounds:
        progress(_so_far(elapsed, tally))
        case = draw(model, seed, tally.rounds)
        played = Round(case, bed, reference)
        failure = played.play()
        tally.add(played.tally)
        if failure is not None:
            where = say(
                "round {n}, step {step}: {what}; shrinking", n=tally.rounds - 1, step=failure.step, what=failure.title
            )
            progress(where)
            finding = _shrunk(case, failure, bed, reference, seed, tally.rounds - 1)
            break
    return SoakReport(model=model, seed=seed, seconds=elapsed, tally=tally, finding=finding)


def _so_far(seconds: float, tally: Tally) -> Sentence:
    return say(
        "{s:.0f} s: {rounds} rounds, {steps:,} steps, {requests:,} requests",
        s=seconds,
        rounds=tally.rounds,
        steps=tally.steps,
        requests=tally.requests,
    )


def replay(finding: Finding, bed: Bed, reference: Reference | None = None) -> Failure | None:
    """Play the case of ``finding`` once more, outputs compared."""
    return Round(finding.case, bed, reference or Reference(bed)).play()


def write(finding: Finding, path: Path) -> None:
    """JSON for people: one line a field, token ids in one line."""
    text = msgspec.json.format(msgspec.json.encode(finding), indent=1).decode()
    path.write_text(re.sub(r"\[\n[\d,\s]*\]", lambda ids: " ".join(ids[0].split()), text) + "\n", encoding="utf-8")


def read(path: Path) -> Finding:
    """What `write` wrote. Raises `ConfigError` for anything else."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=Finding)
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}.") from None
    except msgspec.MsgspecError as error:
        raise ConfigError(f"{path} is no case that a soak has written: {error}.") from None


def _shrunk(case: Case, failure: Failure, bed: Bed, reference: Reference, seed: int, number: int) -> Finding:
    compare = reference if failure.kind in (Kind.OUTPUT, Kind.ERROR) else None  # alone takes time

    late = time.monotonic() + SHRINKING_S

    def fails(smaller: Case) -> bool:
        return time.monotonic() < late and failure.same(Round(smaller, bed, compare).play())

    shrinker = Shrinker(case, fails)
    with suppress(KeyboardInterrupt):  # whoever has seen enough keeps what it has come to
        shrinker.shrink()
    smallest = shrinker.case
    last = Round(smallest, bed, reference).play()
    if last is None or not failure.same(last):  # comparing outputs shows something else before: then that it is
        smallest, last = case, failure
    return Finding(pellucid=__version__, seed=seed, round=number, failure=last, case=smallest)
