"""A claim: a sentence about PagedAttention that recordings can prove or refute."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from msgspec import structs

from pellucid.lab.proof import Finding, Proof, not_observable
from pellucid.lab.recording import Recording
from pellucid.lab.scenario import Scenario
from pellucid.lang import say

Recordings = Mapping[str, Recording]
"""By the name of their scenario."""


class Claim(NamedTuple):
    """``judge`` reads the recordings of the scenarios that the claim ``needs``, and of ``also`` where there are any."""

    id: str
    title: str
    sentence: str
    needs: tuple[Scenario, ...]
    judge: Callable[[Recordings], Finding]
    also: tuple[Scenario, ...] = ()

    def prove(self, recordings: Recordings, missing: Mapping[str, str] | None = None) -> Proof:
        """Judge ``recordings``; ``missing`` says for scenarios that could not be played why."""
        absent = [scenario.name for scenario in self.needs if scenario.name not in recordings]
        if absent:
            reason = (missing or {}).get(absent[0], say("it was not played"))
            finding = not_observable(say("The scenario {name!r} did not run: {reason}.", name=absent[0], reason=reason))
        else:
            read = {scenario.name for scenario in (*self.needs, *self.also)}
            finding = self.judge({name: recording for name, recording in recordings.items() if name in read})
        return Proof(id=self.id, title=self.title, sentence=self.sentence, **structs.asdict(finding))
