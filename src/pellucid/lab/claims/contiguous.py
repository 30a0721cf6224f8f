"""Claim: without paging the request that paging serves would be refused. A counterfactual, played on the same trace."""

from __future__ import annotations

from typing import Any, NamedTuple

from pellucid.lab.claim import Claim, Recordings
from pellucid.lab.contiguous import Moment, lengths_they_have, lengths_they_may_have, replay
from pellucid.lab.proof import Exhibit, Finding, Table, Verdict, not_observable, refuted
from pellucid.lab.recording import Recording
from pellucid.lab.scenarios.holes import ARRIVES, HOLES
from pellucid.lang import Sentence, say


class Counterfactual(NamedTuple):
    """What became of the late request in a contiguous memory, from the frame of its arrival on.

    ``needs`` slots in a row; ``placed`` is the first moment in which it has them, ``waits`` are those before.
    """

    needs: int
    moments: tuple[Moment, ...]
    placed: Moment | None
    waits: tuple[Moment, ...]

    @classmethod
    def of(cls, run: Recording, lengths: dict[str, int]) -> Counterfactual:
        moments = tuple(replay(run, lengths))
        placed = next((moment for moment in moments if moment.holds(ARRIVES)), None)
        waits = tuple(moment for moment in moments if ARRIVES in moment.waiting)
        return cls(lengths[ARRIVES], moments, placed, waits)


def judge(recordings: Recordings) -> Finding:
    """Paging as it was recorded, beside a first-fit allocator that is told every length beforehand."""
    run = recordings[HOLES.name]
    if not any(ARRIVES in frame.added for frame in run.frames):
        return not_observable(say("{name} never arrived.", name=ARRIVES))
    told, blind = (Counterfactual.of(run, lengths(run)) for lengths in (lengths_they_have, lengths_they_may_have))
    served = run.served(ARRIVES)
    if served is None:
        return _not_served(run, told)
    frame = run.frames[served]
    needed, have = run.blocks_for(len(run.requests[ARRIVES].prompt)), len(set(frame.blocks(ARRIVES)))
    if have != needed:
        return refuted(
            say(
                "Paging did not serve {name}: its prompt needs {needed} blocks, and it has {have} different ones.",
                name=ARRIVES,
                needed=needed,
                have=have,
            ),
            exhibits=(Exhibit(say("After step {step}", step=frame.step), frame.snapshot),),
        )
    if told.placed is not None and told.placed.frame.step <= frame.step:
        return not_observable(
            say(
                "Here it would not have been: a contiguous allocator that knows every length beforehand finds the "
                "{needs:,} slots in a row that {name} needs in step {step}.",
                name=ARRIVES,
                needs=told.needs,
                step=told.placed.frame.step,
            ),
            facts=_facts(run, frame.step, told, blind),
            tables=(_memory(told.placed),),
        )
    return _proved(run, served, told, blind)


def _not_served(run: Recording, told: Counterfactual) -> Finding:
    """Refuted if paging left waiting what a contiguous allocator serves."""
    waited = sum(frame.live(ARRIVES) is not None for frame in run.frames)
    if told.placed is None:
        return not_observable(
            say("{name} waited {n} steps, and in a contiguous memory it would wait too.", name=ARRIVES, n=waited)
        )
    return refuted(
        say(
            "A contiguous allocator serves {name} in step {step}; paging let it wait {n} steps.",
            name=ARRIVES,
            step=told.placed.frame.step,
            n=waited,
        ),
        tables=(_memory(told.placed),),
    )


def _proved(run: Recording, served: int, told: Counterfactual, blind: Counterfactual) -> Finding:
    frame = run.frames[served]
    at = told.moments[served]
    evidence: dict[str, Any] = {
        "served_in_step": frame.step,
        "blocks": len(frame.blocks(ARRIVES)),
        "needs_slots": told.needs,
        "longest_run": at.longest,
        "free_slots": at.free,
        "waits_steps": len(told.waits),
        "placed_in_step": told.placed and told.placed.frame.step,
        "memory": [{"start": part.start, "end": part.end, "request": part.name} for part in at.memory],
        "reserving_max_model_len": {
            "needs_slots": blind.needs,
            "longest_run": max(moment.longest for moment in blind.waits) if blind.waits else None,
            "most_at_once": _most(blind),
            "placed_in_step": blind.placed and blind.placed.frame.step,
        },
    }
    return Finding(
        Verdict.PROVED,
        say(
            "{name} needs {needs:,} slots in a row, and the longest free run is {longest:,} of {free:,} free slots: "
            "refused where paging serves it.",
            name=ARRIVES,
            needs=told.needs,
            longest=at.longest,
            free=at.free,
        ),
        say(
            "{steps} steps, {slots:,} slots, {requests} requests, replayed with every length known beforehand",
            steps=run.steps,
            slots=run.usable * run.block_size,
            requests=len(run.requests),
        ),
        _facts(run, frame.step, told, blind),
        evidence,
        (Exhibit(say("Step {step}: with paging", step=frame.step), frame.snapshot),),
        (_memory(at),),
    )


def _facts(run: Recording, step: int, told: Counterfactual, blind: Counterfactual) -> tuple[tuple[str, str], ...]:
    return (
        (say("with paging"), say("served in step {step}", step=step)),
        (say("first fit, told all"), _outcome(told)),
        (
            say("first fit, told nothing"),
            say(
                "reserves max_model_len, {slots:,} slots each: at most {n} at once",
                slots=run.about.max_model_len,
                n=_most(blind),
            ),
        ),
        ("", _outcome(blind)),
    )


def _outcome(case: Counterfactual) -> Sentence:
    if case.placed is not None:
        return say(
            "{name} waits {n} steps, and is served in step {step}",
            name=ARRIVES,
            n=len(case.waits),
            step=case.placed.frame.step,
        )
    return say("{name} still waits when paging has answered it", name=ARRIVES)


def _most(case: Counterfactual) -> int:
    """The most requests that were ever in memory together."""
    return max(sum(part.name is not None for part in moment.memory) for moment in case.moments)


def _memory(moment: Moment) -> Table:
    """The contiguous memory from its beginning, at one moment."""
    rows = tuple(
        (part.name or say("free"), f"{part.start:,}", f"{part.end - 1:,}", f"{part.length:,}") for part in moment.memory
    )
    return Table((say("contiguous memory"), say("from slot"), say("to slot"), say("slots")), rows)


CONTIGUOUS = Claim(
    "contiguous",
    say("Without paging it would be refused"),
    say("A contiguous first-fit allocator with the same memory refuses the request that paging serves."),
    (HOLES,),
    judge,
)
