"""A claim that no fault refutes proves nothing: each is shown recordings of an engine that breaks it."""

from __future__ import annotations

import pytest

from lab import faults_page
from lab.faults import Fault
from lab.faults_picture import picture
from lab.matrix import CLAIM_IDS, FAULTS, Matrix, claims, faults, judged
from pellucid.lab.claims import CLAIMS
from pellucid.lab.proof import Verdict
from pellucid.lab.trial import Plays

JUDGES = {claim.id: claim for claim in CLAIMS}
AIMED = [pytest.param(fault, claim, id=f"{claim}: {fault.name}") for fault in FAULTS for claim in fault.refutes]


@pytest.fixture(scope="module")
def matrix(plays: Plays) -> Matrix:
    """A fresh judgement of every pair."""
    return judged(plays.recordings)


def test_without_a_fault_every_claim_is_proved(plays: Plays) -> None:
    assert {claim.id: claim.prove(plays.recordings).verdict for claim in CLAIMS} == dict.fromkeys(
        CLAIM_IDS, Verdict.PROVED
    )


@pytest.mark.parametrize(("fault", "claim"), AIMED)
def test_a_fault_refutes_the_claim_that_it_is_aimed_at(plays: Plays, fault: Fault, claim: str) -> None:
    proof = JUDGES[claim].prove(fault.put_in(plays.recordings))
    assert proof.verdict is Verdict.REFUTED, proof.reason
    words = fault.refutes[claim]
    assert any(word in proof.reason for word in words.split("|")), proof.reason


@pytest.mark.parametrize("fault", FAULTS, ids=[fault.name for fault in FAULTS])
def test_a_fault_changes_its_recordings_and_no_other(plays: Plays, fault: Fault) -> None:
    before = dict(plays.recordings)
    after = fault.put_in(plays.recordings)
    assert plays.recordings == before
    changed = [name for name, run in after.items() if run != before[name]]
    assert changed == (list(before) if fault.scenario is None else [fault.scenario])


def test_every_fault_has_a_name_of_its_own() -> None:
    assert len({fault.name for fault in FAULTS}) == len({fault.sentence for fault in FAULTS}) == len(FAULTS)


@pytest.mark.parametrize("claim", CLAIM_IDS)
def test_every_claim_is_refuted_by_a_fault(matrix: Matrix, claim: str) -> None:
    assert faults(matrix, claim)


@pytest.mark.parametrize("fault", [fault.name for fault in FAULTS])
def test_every_fault_is_caught_by_a_claim(matrix: Matrix, fault: str) -> None:
    assert claims(matrix[fault], Verdict.REFUTED)


def test_the_published_page_is_of_these_faults(matrix: Matrix) -> None:
    how = "run tests/write_faults.py, which writes docs/faults.md and docs/faults.svg"
    assert faults_page.PAGE.read_text() == faults_page.page(matrix), how
    assert faults_page.PICTURE.read_text() == picture(matrix), how
