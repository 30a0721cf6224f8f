"""Claim: a request holds blocks for the tokens it has, not for those it might come to."""

from __future__ import annotations

from typing import Any

from pellucid.kv.snapshot import RequestView
from pellucid.lab.claim import Claim, Recordings
from pellucid.lab.proof import Exhibit, Finding, Table, Verdict, not_observable, refuted
from pellucid.lab.recording import Frame, Recording
from pellucid.lab.scenarios.mixed import MIXED
from pellucid.lang import say


def judge(recordings: Recordings) -> Finding:
    """Every table at every step: as long as its tokens need, beside what a reservation would take."""
    run = recordings[MIXED.name]
    reserved = run.blocks_for(run.about.max_model_len)
    readings, grown = 0, 0
    held: dict[str, int] = {}
    for frame in run.frames:
        for request in frame.snapshot.requests:
            if wrong := _wrong(run, frame, request):
                return refuted(wrong, exhibits=(Exhibit(say("After step {step}", step=frame.step), frame.snapshot),))
            if request.blocks:
                readings += 1
                grown += 0 < held.get(request.name, 0) < len(request.blocks)
                held[request.name] = len(request.blocks)
    if not readings:
        return not_observable(say("No request ever held a block."))
    if min(held.values()) >= reserved:
        return not_observable(say("Every request used all that max_model_len would reserve, {n} block(s).", n=reserved))
    peak = max(run.frames, key=lambda frame: sum(len(request.blocks) for request in frame.running()))
    return _proved(run, peak, reserved, readings, grown)


def _wrong(run: Recording, frame: Frame, request: RequestView) -> str | None:
    """Counted twice: from the engine's own slots, and from what was sent and received."""
    held, expected = len(request.blocks), run.blocks_for(request.slots)
    if held != expected:
        return say(
            "After step {step} {name!r} holds {held} blocks for {tokens} tokens, not {expected}.",
            step=frame.step,
            name=request.name,
            held=held,
            tokens=request.slots,
            expected=expected,
        )
    if request.name not in run.requests:
        return None
    sent = len(run.requests[request.name].prompt)
    received = frame.received.get(request.name, 0)
    most = run.blocks_for(sent + received + len(frame.snapshot.launched))
    if held > most:
        return say(
            "After step {step} {name!r} holds {held} blocks, and its {sent} + {received} tokens need {most}.",
            step=frame.step,
            name=request.name,
            held=held,
            sent=sent,
            received=received,
            most=most,
        )
    return None


def _proved(run: Recording, peak: Frame, reserved: int, readings: int, grown: int) -> Finding:
    lengths = [_length(run, name) for name in run.requests if run.served(name) is not None]
    running = peak.running()
    held = sum(len(request.blocks) for request in running)
    evidence: dict[str, Any] = {
        "requests": lengths,
        "readings": readings,
        "grown": grown,
        "max_model_len": run.about.max_model_len,
        "reserved_per_request": reserved,
        "block_steps": _block_steps(run, reserved),
        "peak": {"step": peak.step, "running": len(running), "held": held, "reserved": reserved * len(running)},
    }
    return Finding(
        Verdict.PROVED,
        say("Every table was exactly as long as its tokens need, after every step."),
        say(
            "{steps} steps, {usable:,} usable blocks, {requests} requests, {tables} tables read",
            steps=run.steps,
            usable=run.usable,
            requests=len(run.requests),
            tables=readings,
        ),
        _facts(run, evidence),
        evidence,
        (Exhibit(say("Step {step}, the peak", step=peak.step), peak.snapshot),),
        (_table(evidence),),
    )


def _table(evidence: dict[str, Any]) -> Table:
    reserved = f"{evidence['reserved_per_request']:,}"
    return Table(
        (say("prompt"), say("tokens"), say("blocks"), say("waste"), say("blocks if reserved")),
        tuple(
            (row["name"], f"{row['tokens']:,}", f"{row['blocks']:,}", f"{row['waste']:,}", reserved)
            for row in evidence["requests"]
        ),
    )


def _facts(run: Recording, evidence: dict[str, Any]) -> tuple[tuple[str, str], ...]:
    peak = evidence["peak"]
    held = say(
        "{running} requests held {held} of {usable:,} blocks",
        running=peak["running"],
        held=peak["held"],
        usable=run.usable,
    )
    instead = say(
        "reserving max_model_len={tokens} for each would take {blocks:,}",
        tokens=evidence["max_model_len"],
        blocks=peak["reserved"],
    )
    grown = say("tables grew {n} times, one block at a time", n=evidence["grown"])
    spent = evidence["block_steps"]
    over_all = say(
        "{held:,} blocks x steps were held, and reserving would have held {reserved:,}",
        held=spent["held"],
        reserved=spent["reserved"],
    )
    return (
        (say("at the peak"), held),
        ("", instead),
        (say("over all steps"), over_all),
        (say("while decoding"), grown),
    )


def _block_steps(run: Recording, reserved: int) -> dict[str, int]:
    """Blocks held by running requests, summed over the steps, and what as many reservations would have held."""
    tables = [request.blocks for frame in run.frames for request in frame.running()]
    return {"held": sum(map(len, tables)), "reserved": reserved * len(tables)}


def _length(run: Recording, name: str) -> dict[str, Any]:
    """One request when its prompt had just got its blocks."""
    index = run.served(name)
    assert index is not None
    request = run.frames[index].live(name)
    assert request is not None
    return {
        "name": name,
        "step": run.frames[index].step,
        "tokens": request.slots,
        "blocks": len(request.blocks),
        "waste": len(request.blocks) * run.block_size - request.slots,
        "table": list(request.blocks),
    }


TAKEN_AS_USED = Claim(
    "taken-as-used",
    say("Blocks are taken as they are used"),
    say("A request holds ceil(tokens / block size) blocks at every step, whatever its maximum length."),
    (MIXED,),
    judge,
)
