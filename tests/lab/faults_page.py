"""docs/faults.md: what a fault is, and what each claim says of each."""

from __future__ import annotations

from pathlib import Path

from lab.matrix import CLAIM_IDS, FAULTS, Matrix, claims, faults
from pellucid.lab.claims import CLAIMS
from pellucid.lab.proof import Verdict

DOCS = Path(__file__).parents[2] / "docs"
PAGE = DOCS / "faults.md"
PICTURE = DOCS / "faults.svg"


def page(matrix: Matrix) -> str:
    """All of it."""
    return f"""# Faults

A claim that nothing can refute proves nothing. So every claim of `pellucid prove` is shown engines that break it.

**A fault** is something that an engine could do wrong. Claims judge recordings and never engines, so it need not be
built into one: the scenarios are played once on `tiny`, with 79 usable blocks of 16 tokens, and a copy of a recording
is changed until it tells of an engine that has the fault: another table, an answer with another last token, an act that
the journal lacks. Then all {len(CLAIMS)} claims, each proved without it, judge that copy beside the other recordings.
Faults in the source are mutants: [mutants.md](mutants.md#what-the-claims-see) says which of those the claims notice.

{summary(matrix)}

![Faults as rows, claims as columns; the tables below say the same in words.](faults.svg)

## The claims

"Alone" are the faults that no other claim refutes.

{claim_table(matrix)}

## The faults

The claim that a fault is aimed at stands first. Whatever is in neither of the last two columns is still proved.

{fault_table(matrix)}

This page is generated: `python tests/write_faults.py` writes it and its picture in seconds, and `make test` judges
every pair afresh and compares. The faults are in `tests/lab/*_faults.py`, each in a few lines.
"""


def summary(matrix: Matrix) -> str:
    refuted = sum(len(claims(row, Verdict.REFUTED)) for row in matrix.values())
    unseen = sum(len(claims(row, Verdict.NOT_OBSERVABLE)) for row in matrix.values())
    caught = sum(1 for row in matrix.values() if claims(row, Verdict.REFUTED))
    without = sum(1 for row in matrix.values() if claims(row, Verdict.REFUTED) not in ([], ["journal"]))
    reached = sum(1 for claim in CLAIM_IDS if faults(matrix, claim))
    pairs = len(FAULTS) * len(CLAIMS)
    return f"""**{len(FAULTS)} faults × {len(CLAIMS)} claims: {caught} faults are caught by a claim or more, and \
{reached} claims refuted by a fault or more.**
Of the {pairs} pairs {refuted} are refuted and {unseen} not observable; in {pairs - refuted - unseen} the claim is \
still proved, as the fault is none of its business.

Most faults are put into the pictures and not into the journal, or the other way round, so that the two differ, and the
claim `journal` says so; a real engine would mostly err in both. Without that claim {without} of the {caught} are \
caught."""


def claim_table(matrix: Matrix) -> str:
    rows = ["| | claim | what it says | refuted by | alone |", "| --- | --- | --- | --- | --- |"]
    for number, claim in enumerate(CLAIMS, start=1):
        refuting = faults(matrix, claim.id)
        alone = [fault for fault in refuting if claims(matrix[fault], Verdict.REFUTED) == [claim.id]]
        rows.append(f"| {number} | `{claim.id}` | {claim.sentence} | {len(refuting)} faults | {len(alone)} |")
    return "\n".join(rows)


def fault_table(matrix: Matrix) -> str:
    rows = ["| fault | what happens | put into | refuted | not observable |", "| --- | --- | --- | --- | --- |"]
    for fault in FAULTS:
        row, aim = matrix[fault.name], list(fault.refutes)
        refuted = sorted(claims(row, Verdict.REFUTED), key=lambda claim: claim not in aim)
        where = "every recording" if fault.scenario is None else f"`{fault.scenario}`"
        cells = fault.name, fault.sentence, where, ids(refuted), ids(claims(row, Verdict.NOT_OBSERVABLE))
        rows.append(f"| {' | '.join(cells)} |")
    return "\n".join(rows)


def ids(claims: list[str]) -> str:
    return " ".join(f"`{claim}`" for claim in claims) or "–"
