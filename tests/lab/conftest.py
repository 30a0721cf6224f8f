"""One trial of `tiny`, recorded once: tests judge it, or copies of it with a fault put in."""

from __future__ import annotations

import pytest

from pellucid.lab.pellucid_subject import PellucidLaboratory
from pellucid.lab.recorder import Recorder, tokens
from pellucid.lab.trial import Plays, play
from pellucid.model import LoadedModel, load


@pytest.fixture(scope="session")
def tiny() -> LoadedModel:
    return load("tiny")


@pytest.fixture(scope="session")
def plays(tiny: LoadedModel) -> Plays:
    """Every scenario, on 80 blocks of 16 tokens."""
    return play(PellucidLaboratory(tiny))


@pytest.fixture(scope="session")
def running_ahead(tiny: LoadedModel) -> Plays:
    """The same with asynchronous scheduling; and ``aborted``, in which blocks are seen fenced."""
    laboratory = PellucidLaboratory(tiny, async_scheduling=True)
    plays = play(laboratory)
    recorder = Recorder("aborted", laboratory(enable_prefix_caching=True), engine=99)
    for name in ("stays", "goes"):
        recorder.add(name, tokens(260, name, 70), 12)
    recorder.step()
    recorder.step()
    recorder.abort("goes")
    recorder.observe()
    recorder.until(lambda: recorder.ended("stays"), limit=20)
    plays.recordings["aborted"] = recorder.recording()
    return plays
