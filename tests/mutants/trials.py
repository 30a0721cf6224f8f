"""What `pellucid prove` says of each mutant: every claim judged on `tiny`, with the mutated source.

A trial takes a fraction of a second and importing torch longer, so one process imports torch, and a fork of it imports
the mutated package.
"""

from __future__ import annotations

import multiprocessing
import signal
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from multiprocessing.connection import Connection
from pathlib import Path

from catalogue import Mutant
from copies import package_with

LIMIT_S = 15  # many times what a trial takes; a mutant that loops for ever also eats memory


class Seen(StrEnum):
    """What the claims make of a mutant, the strongest first."""

    REFUTED = "refuted"
    ERROR = "stops with an error"
    NOT_OBSERVABLE = "not observable"
    NOT_SEEN = "not seen"


@dataclass(frozen=True)
class Trial:
    """One trial: the claims that are ``refuted`` or ``unobservable``, or the type of the ``error`` that ended it."""

    refuted: tuple[str, ...] = ()
    unobservable: tuple[str, ...] = ()
    error: str = ""

    @property
    def seen(self) -> Seen:
        if self.refuted:
            return Seen.REFUTED
        if self.error:
            return Seen.ERROR
        return Seen.NOT_OBSERVABLE if self.unobservable else Seen.NOT_SEEN


class TrialError(Exception):
    """The trials could not tell anything: without a mutant not every claim is proved, or a process is gone."""


def trials(mutants: list[Mutant]) -> Iterator[Trial]:
    """One after the other. Raises `CatalogueError` for a mutant that does not fit, `TrialError`."""
    for mutant in mutants:
        mutant.locate()
    if (sound := trial(None)) != Trial():
        raise TrialError(f"without any mutant: {sound}")
    yield from map(trial, mutants)


def trial(mutant: Mutant | None) -> Trial:
    """The trial of a fresh copy of the package, in a process of its own."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["torch"])
    with package_with(mutant) as package:
        ours, theirs = context.Pipe(duplex=False)
        process = context.Process(target=_trial_of, args=(str(package), theirs))
        process.start()
        theirs.close()
        try:
            found: Trial = ours.recv()
        except EOFError:
            process.join()
            if process.exitcode != -signal.SIGALRM:
                raise TrialError(f"the trial of {mutant} ended with status {process.exitcode}.") from None
            found = Trial(error="the time limit")
        process.join()
        return found


def _trial_of(package: str, connection: Connection) -> None:
    signal.alarm(LIMIT_S)
    sys.path.insert(0, str(Path(package).parent))
    try:
        found = _judge(package)
    except Exception as error:
        found = Trial(error=type(error).__name__)
    connection.send(found)


def _judge(package: str) -> Trial:
    """The verdicts of the claims on `tiny`. Raises whatever the mutant makes the engine or a judge raise."""
    import torch

    import pellucid
    from pellucid.lab.pellucid_subject import PellucidLaboratory
    from pellucid.lab.proof import Verdict
    from pellucid.lab.trial import trial
    from pellucid.log import only_warnings

    if not Path(pellucid.__file__).is_relative_to(package):
        raise SystemExit(f"pellucid comes from {pellucid.__file__}, not from {package}.")
    torch.set_num_threads(1)
    with only_warnings():
        report = trial(PellucidLaboratory("tiny"))
    of = {verdict: tuple(proof.id for proof in report.claims if proof.verdict is verdict) for verdict in Verdict}
    return Trial(of[Verdict.REFUTED], of[Verdict.NOT_OBSERVABLE])
