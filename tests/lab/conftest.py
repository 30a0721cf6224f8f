"""One trial of `tiny`, recorded once: tests judge it, or copies of it with a fault put in."""

from __future__ import annotations

import pytest

from pellucid.lab.pellucid_subject import PellucidLaboratory
from pellucid.lab.trial import Plays, play
from pellucid.model import LoadedModel, load


@pytest.fixture(scope="session")
def tiny() -> LoadedModel:
    return load("tiny")


@pytest.fixture(scope="session")
def plays(tiny: LoadedModel) -> Plays:
    """Every scenario, on 80 blocks of 16 tokens."""
    return play(PellucidLaboratory(tiny))
