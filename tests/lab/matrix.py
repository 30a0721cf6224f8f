"""Every claim judged on recordings with every fault put in, one at a time."""

from __future__ import annotations

from lab import block_faults, cache_faults, placement_faults, scheduling_faults
from lab.faults import Fault, Recordings
from pellucid.lab.claims import CLAIMS
from pellucid.lab.proof import Verdict

CLAIM_IDS = [claim.id for claim in CLAIMS]

FAULTS: list[Fault] = sorted(
    [*block_faults.FAULTS, *placement_faults.FAULTS, *cache_faults.FAULTS, *scheduling_faults.FAULTS],
    key=lambda fault: CLAIM_IDS.index(next(iter(fault.refutes))),
)
"""In the order of the claims that they are aimed at."""

Row = dict[str, Verdict]
"""By claim."""

Matrix = dict[str, Row]
"""By fault."""


def judged(recordings: Recordings) -> Matrix:
    """Every pair."""
    matrix: Matrix = {}
    for fault in FAULTS:
        changed = fault.put_in(recordings)
        matrix[fault.name] = {claim.id: claim.prove(changed).verdict for claim in CLAIMS}
    return matrix


def claims(row: Row, verdict: Verdict) -> list[str]:
    """Those of this verdict."""
    return [claim for claim, its in row.items() if its is verdict]


def faults(matrix: Matrix, claim: str, verdict: Verdict = Verdict.REFUTED) -> list[str]:
    """Those that bring ``claim`` to this verdict."""
    return [fault for fault, row in matrix.items() if row[claim] is verdict]
