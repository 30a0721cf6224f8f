"""Claim: every token that was asked of the prefix cache hit, or missed for one reason that is told."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any, NamedTuple

from pellucid.kv.acts import Admit, AnyAct, Commit, Evict, Lookup, LookupKind, MissReason, Open, Share, Unpublish
from pellucid.lab.claim import Claim, Recordings
from pellucid.lab.proof import Finding, Table, Verdict, not_observable, refuted
from pellucid.lab.recording import Recording
from pellucid.lab.scenarios.pressure import PRESSURE
from pellucid.lab.scenarios.reuse import REUSE
from pellucid.lab.scenarios.salts import SALTS
from pellucid.lab.scenarios.sharing import SHARING
from pellucid.lang import say


class Answer(NamedTuple):
    """One lookup, beside what is known without it.

    ``tokens`` the request had then, ``shared`` of them stood in the blocks that it got from the cache, and
    ``started`` is where it began to compute.
    """

    scenario: str
    lookup: Lookup
    tokens: int
    shared: int
    started: int


def judge(recordings: Recordings) -> Finding:
    """Each lookup is added up, compared with what the other acts tell, and the sums with the engine's counters."""
    runs = [run for run in recordings.values() if run.acts is not None]
    if not runs:
        return not_observable(say("This engine keeps no journal, so no lookup can be seen."))
    answers = [answer for run in runs for answer in _answers(run)]
    if not answers:
        return not_observable(say("Nobody asked the prefix cache for anything."))
    for run in runs:
        for answer in _answers(run):
            if wrong := _wrong(run, answer):
                return refuted(
                    say(
                        "{name} in the scenario {scenario!r}: {what}",
                        name=answer.lookup.request,
                        scenario=run.scenario,
                        what=wrong,
                    )
                )
        if wrong := _wrong_totals(run):
            return refuted(say("The counters of the scenario {scenario!r}: {what}", scenario=run.scenario, what=wrong))
    return _proved(runs, answers)


def _answers(run: Recording) -> Iterator[Answer]:
    """A lookup, the blocks shared and the admission stand next to one another in the journal."""
    tokens: Counter[str] = Counter()
    lookups: dict[str, Lookup] = {}
    shared: dict[str, int] = {}
    for act in run.acts or ():
        match act:
            case Open():
                tokens[act.request] = act.tokens
            case Commit():
                tokens.update(act.requests)
            case Lookup():
                lookups[act.request], shared[act.request] = act, 0
            case Share():
                shared[act.request] = len(act.blocks) * run.block_size
            case Admit() if act.request in lookups:
                name = act.request
                yield Answer(run.scenario, lookups.pop(name), tokens[name], shared[name], act.computed)
            case _:
                pass


def _wrong(run: Recording, answer: Answer) -> str | None:
    lookup, size = answer.lookup, run.block_size
    missed = sum(miss.tokens for miss in lookup.missed)
    if lookup.asked != lookup.hit + missed:
        return say(
            "it asked for {asked} tokens, hit {hit} and missed {missed}, which is {n} in all.",
            asked=lookup.asked,
            hit=lookup.hit,
            missed=missed,
            n=lookup.hit + missed,
        )
    if lookup.asked != answer.tokens:
        return say("it had {tokens} tokens and asked for {asked}.", tokens=answer.tokens, asked=lookup.asked)
    if not lookup.hit == answer.shared == answer.started:
        return say(
            "it hit {hit} tokens, shares blocks of {shared} and starts to compute at {started}.",
            hit=lookup.hit,
            shared=answer.shared,
            started=answer.started,
        )
    return _wrong_places(lookup, size) or _wrong_reasons(run, lookup, size)


def _wrong_places(lookup: Lookup, size: int) -> str | None:
    """The runs of misses follow one another from the first block that did not hit."""
    place = lookup.hit
    for miss in lookup.missed:
        if miss.block * size != place:
            return say("token {place} missed for no reason, or for two.", place=min(place, miss.block * size))
        place += miss.tokens
    return None


def _wrong_reasons(run: Recording, lookup: Lookup, size: int) -> str | None:
    """What other acts bear witness to: the rest of a block, evictions and withdrawals."""
    short = sum(miss.tokens for miss in lookup.missed if miss.reason is MissReason.SHORT)
    bypass = lookup.kind is LookupKind.BYPASS
    if short != (0 if bypass else lookup.asked % size):
        return say("{n} tokens are told to be shorter than a block of {size}.", n=short, size=size)
    for miss in lookup.missed:
        witness = {MissReason.EVICTED: Evict, MissReason.WITHDRAWN: Unpublish}.get(miss.reason)
        if witness is None or miss.step is None or miss.step <= run.frames[0].snapshot.step:
            continue
        if not any(_is(act, witness, miss.step, miss.by) for act in run.acts or ()):
            return say(
                "block {block} is told to be lost in step {step} to {by}, and no act says so.",
                block=miss.block,
                step=miss.step,
                by=miss.by,
            )
    return None


def _is(act: AnyAct, kind: type, step: int, request: str | None) -> bool:
    return isinstance(act, kind) and act.step == step and getattr(act, "request", None) == request


def _wrong_totals(run: Recording) -> str | None:
    """The engine's counters grew by what the lookups say."""
    first, last = run.frames[0].snapshot, run.frames[-1].snapshot
    sums: Counter[str] = Counter()
    for act in run.acts or ():
        if isinstance(act, Lookup):
            sums.update({"asked": act.asked, "hit": act.hit})
            for miss in act.missed:
                sums[miss.reason] += miss.tokens
    counted: Counter[str] = Counter()
    for sign, shot in ((1, last), (-1, first)):
        for count in shot.hits.values():
            counted.update({"asked": sign * count.asked, "hit": sign * count.hit})
        counted.update({reason: sign * tokens for reason, tokens in shot.missed.items()})
    for key in sorted(sums.keys() | counted.keys()):
        if sums[key] != counted[key]:
            what = COUNTERS.get(key) or REASONS[MissReason(key)]
            return say(
                "{what}: {counted} tokens are counted and {n} told.", what=what, counted=counted[key], n=sums[key]
            )
    return None


def _proved(runs: list[Recording], answers: list[Answer]) -> Finding:
    rows = [_row(answer) for answer in answers]
    totals: Counter[str] = Counter()
    for row in rows:
        totals.update(row["missed"])
    asked, hit = sum(row["asked"] for row in rows), sum(row["hit"] for row in rows)
    evidence: dict[str, Any] = {"lookups": rows, "asked": asked, "hit": hit, "missed": dict(totals)}
    facts = [
        (say("asked"), say("{n:,} tokens in {times} lookups", n=asked, times=len(rows))),
        (say("hit"), say("{n:,} tokens", n=hit)),
        (say("missed"), say("{n:,} tokens, for {reasons} reasons", n=totals.total(), reasons=len(totals))),
    ]
    return Finding(
        Verdict.PROVED,
        say(
            "{asked:,} tokens asked = {hit:,} hit + {missed:,} missed, each for one reason.",
            asked=asked,
            hit=hit,
            missed=totals.total(),
        ),
        say("{lookups} lookups in {n} scenarios", lookups=len(rows), n=len({row["scenario"] for row in rows})),
        tuple(facts),
        evidence,
        tables=(_table(rows, totals),),
    )


def _row(answer: Answer) -> dict[str, Any]:
    missed: Counter[str] = Counter()
    for miss in answer.lookup.missed:
        missed[miss.reason.value] += miss.tokens
    lookup = answer.lookup
    return {
        "scenario": answer.scenario,
        "request": lookup.request,
        "kind": lookup.kind.value,
        "asked": lookup.asked,
        "hit": lookup.hit,
        "missed": dict(missed),
    }


COUNTERS = {"asked": say("asked"), "hit": say("hit")}
REASONS = {
    MissReason.NEVER_SEEN: say("never seen"),
    MissReason.EVICTED: say("evicted"),
    MissReason.WITHDRAWN: say("withdrawn"),
    MissReason.LAST_BLOCK: say("last block"),
    MissReason.SHORT: say("not a block"),
    MissReason.NAMESPACE: say("other salt"),
    MissReason.BYPASS: say("bypass"),
    MissReason.UNKNOWN: say("unknown"),
}


def _table(rows: list[dict[str, Any]], totals: Counter[str]) -> Table:
    reasons = [reason for reason in MissReason if totals[reason.value]]
    header = (say("request"), say("asked"), say("hit"), *(REASONS[reason] for reason in reasons))
    body = [(row["request"], f"{row['asked']:,}", f"{row['hit']:,}", *_cells(row["missed"], reasons)) for row in rows]
    sums = (say("in all"), f"{sum(r['asked'] for r in rows):,}", f"{sum(r['hit'] for r in rows):,}")
    return Table(header, (*body, (*sums, *_cells(totals, reasons))))


def _cells(missed: dict[str, int], reasons: list[MissReason]) -> tuple[str, ...]:
    return tuple(f"{missed.get(reason.value, 0):,}" for reason in reasons)


MISS_LEDGER = Claim(
    "miss-ledger",
    say("Every miss has a reason"),
    say("Of the tokens asked of the prefix cache each was found, or was not for one reason; the sums agree."),
    (REUSE,),
    judge,
    also=(SHARING, SALTS, PRESSURE),
)
