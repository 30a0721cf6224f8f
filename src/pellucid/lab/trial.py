"""A trial: every scenario played, every claim judged."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from itertools import groupby

from msgspec import Struct

from pellucid.errors import RequestError
from pellucid.lab.claim import Claim
from pellucid.lab.claims import CLAIMS
from pellucid.lab.proof import Proof, Verdict
from pellucid.lab.recorder import Recorder
from pellucid.lab.recording import Recording
from pellucid.lab.scenario import NotArisen, Scenario
from pellucid.lab.scenarios import SCENARIOS
from pellucid.lab.subject import About, Laboratory

Progress = Callable[[str, int], None]
"""Told what is being played, and how many steps it has run."""


class Pool(Struct, frozen=True):
    """A pool, in blocks; ``nbytes`` is None where that cannot be seen."""

    block_size: int
    total: int
    usable: int
    nbytes: int | None


class Report(Struct, frozen=True):
    """Everything a trial came to. ``about`` and ``pool`` are those of its first engine; others have other settings."""

    about: About
    pool: Pool
    steps: int
    verdicts: dict[Verdict, int]
    claims: tuple[Proof, ...]

    def __repr__(self) -> str:
        counts = ", ".join(f"{count} {verdict}" for verdict, count in self.verdicts.items())
        return f"<Report on {self.about.model}: {counts}, in {self.steps} steps>"

    @property
    def exit_status(self) -> int:
        """0 if nothing is refuted, else 1."""
        return 1 if self.verdicts[Verdict.REFUTED] else 0


class Plays:
    """The recordings of a trial by scenario, and for those that could not be played the reason.

    ``broken_off`` are recordings of those that an engine began. No claim is judged on them.
    """

    def __init__(self) -> None:
        self.recordings: dict[str, Recording] = {}
        self.missing: dict[str, str] = {}
        self.broken_off: dict[str, Recording] = {}

    def break_off(self, recorder: Recorder, reason: str) -> None:
        """Leave the engine idle for the next scenario."""
        recorder.drain()
        self.missing[recorder.scenario] = reason
        self.broken_off[recorder.scenario] = recorder.recording()


def play(
    laboratory: Laboratory, scenarios: Sequence[Scenario] = SCENARIOS, progress: Progress = lambda about, step: None
) -> Plays:
    """Play ``scenarios``; neighbours of equal settings share an engine, one after the other.

    Raises what the laboratory raises when it cannot make an engine.
    """
    plays = Plays()
    for engine, (_, group) in enumerate(groupby(scenarios, key=lambda scenario: scenario.settings)):
        ours = list(group)
        try:
            subject = laboratory(**ours[0].settings)
        except NotArisen as lacking:
            plays.missing.update({scenario.name: lacking.reason for scenario in ours})
            continue
        for scenario in ours:
            recorder = Recorder(scenario.name, subject, engine, partial(progress, scenario.about))
            try:
                scenario.play(recorder)
            except NotArisen as not_arisen:
                plays.break_off(recorder, not_arisen.reason)
            except RequestError as error:
                plays.break_off(recorder, str(error).rstrip("."))
            else:
                plays.recordings[scenario.name] = recorder.recording()
    return plays


def trial(
    laboratory: Laboratory, claims: Sequence[Claim] = CLAIMS, progress: Progress = lambda about, step: None
) -> Report:
    """Play what ``claims`` need and judge them all."""
    return report(play_for(laboratory, claims, progress), claims)


def play_for(
    laboratory: Laboratory, claims: Sequence[Claim] = CLAIMS, progress: Progress = lambda about, step: None
) -> Plays:
    """Play what ``claims`` need."""
    needed = {scenario.name for claim in claims for scenario in (*claim.needs, *claim.also)}
    return play(laboratory, [scenario for scenario in SCENARIOS if scenario.name in needed], progress)


def report(plays: Plays, claims: Sequence[Claim] = CLAIMS) -> Report:
    """Judge ``claims`` on what was recorded."""
    recordings = list(plays.recordings.values())
    first = [*recordings, *plays.broken_off.values()][0]
    frame = first.frames[0]
    pool = frame.snapshot.pool
    proofs = tuple(claim.prove(plays.recordings, plays.missing) for claim in claims)
    verdicts = Counter(proof.verdict for proof in proofs)
    return Report(
        about=first.about,
        pool=Pool(pool.block_size, pool.total, pool.usable, frame.memory.nbytes if frame.memory else None),
        steps=sum(recording.steps for recording in recordings),
        verdicts={verdict: verdicts[verdict] for verdict in Verdict},
        claims=proofs,
    )
