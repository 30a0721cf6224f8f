"""The part of docs/mutants.md that says what the claims see."""

from __future__ import annotations

from collections import Counter

from catalogue import Mutant
from trials import Seen, Trial

HEADING = "## What the claims see"

Judged = list[tuple[Mutant, Trial]]
"""In the order of the catalogue."""


def section(judged: Judged) -> str:
    """From its heading to the end of the page."""
    return f"""{HEADING}

`pellucid prove --model tiny` with each mutant in place and nothing else: no unit test, no random traffic, no oracle.
A claim that is *refuted* has found the bug by what blocks, journal and answers look like. A trial may also *stop with
an error*, as the engine checks itself; and where a situation no longer arises a claim is *not observable*, which proves
nothing and blames nobody. What is *not seen* the tests of the table above see.

{summary(count(judged))}

Two kinds are not seen for good reasons. A mutant of what only watches (`invariants.py`, `trail.py`, `fold.py`,
`explain.py`) leaves a sound engine, of which a claim is rightly proved. And a trial has one order of re-use, no
priorities, no watermark, and no bounded or veiled journal; `pellucid soak` does most of that. The others are where
claims could ask for more.

{by_file(judged)}

{by_claim(judged)}

This part is generated too: `nice python tests/mutants/run_mutants.py --claims` (minutes).

| | where | what it breaks | the claims |
| --- | --- | --- | --- |
{rows(judged)}
"""


def summary(counts: dict[str, int]) -> str:
    alive = counts["mutants"] - counts["equivalent"]
    return f"""**Of the {alive} mutants that are not equivalent the claims refute {counts["refuted"]}; \
{counts["stops_with_an_error"]} more stop the trial with an error, {counts["not_observable"]} leave a claim not \
observable, and {counts["not_seen"]} are not seen.**"""


def count(judged: Judged) -> dict[str, int]:
    seen = Counter(trial.seen for mutant, trial in judged if not mutant.equivalent)
    return {
        "mutants": len(judged),
        **{word.replace(" ", "_"): seen[word] for word in Seen},
        "equivalent": sum(1 for mutant, _ in judged if mutant.equivalent),
        "wrongly_called_equivalent": len(wrong(judged)),
    }


def wrong(judged: Judged) -> list[Mutant]:
    """Those called equivalent, and yet seen."""
    return [mutant for mutant, trial in judged if mutant.equivalent and trial.seen is not Seen.NOT_SEEN]


def by_file(judged: Judged) -> str:
    lines = ["| file | refuted | error | not observable | not seen |", "| --- | --- | --- | --- | --- |"]
    for file in dict.fromkeys(mutant.file for mutant, _ in judged):
        seen = Counter(trial.seen for mutant, trial in judged if mutant.file == file and not mutant.equivalent)
        lines.append(f"| {file} | {' | '.join(str(seen[each] or '–') for each in Seen)} |")
    return "\n".join(lines)


def by_claim(judged: Judged) -> str:
    from pellucid.lab.claims import CLAIMS  # only here: trials import a mutated one in its place

    refuted = Counter(claim for _, trial in judged for claim in trial.refuted)
    alone = Counter(trial.refuted[0] for _, trial in judged if len(trial.refuted) == 1)
    lines = ["| claim | mutants that refute it | and no other claim |", "| --- | --- | --- |"]
    lines += [f"| `{claim.id}` | {refuted[claim.id] or '–'} | {alone[claim.id] or '–'} |" for claim in CLAIMS]
    return "\n".join(lines)


def row_head(number: int, mutant: Mutant) -> str:
    """The cells of a mutant that do not depend on a run."""
    return f"| {number} | {mutant.file} `{mutant.place()}` | {mutant.breaks} |"


def rows(judged: Judged) -> str:
    return "\n".join(f"{row_head(number, pair[0])} {_end(*pair)} |" for number, pair in enumerate(judged, start=1))


def _end(mutant: Mutant, trial: Trial) -> str:
    match trial.seen:
        case Seen.NOT_SEEN:
            return "equivalent" if mutant.equivalent else "not seen"
        case Seen.REFUTED:
            return _ids(trial.refuted)
        case Seen.ERROR:
            return f"{trial.seen}: {trial.error}"
        case Seen.NOT_OBSERVABLE:
            return f"{trial.seen}: {_ids(trial.unobservable)}"


def _ids(claims: tuple[str, ...]) -> str:
    return " ".join(f"`{claim}`" for claim in claims)
