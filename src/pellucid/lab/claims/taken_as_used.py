"""Claim: a request holds blocks for the tokens it has, not for those it might come to."""

from __future__ import annotations

from typing import Any

from pellucid.kv.snapshot import RequestView
from pellucid.lab.claim import Claim, Recordings
from pellucid.lab.proof import Exhibit, Finding, Verdict, not_observable, refuted
from pellucid.lab.recording import Frame, Recording
from pellucid.lab.scenario import MIXED


def judge(recordings: Recordings) -> Finding:
    """Every table at every step: as long as its tokens need, beside what a reservation would take."""
    run = recordings[MIXED.name]
    reserved = run.blocks_for(run.about.max_model_len)
    readings, grown = 0, 0
    held: dict[str, int] = {}
    for frame in run.frames:
        for request in frame.snapshot.requests:
            if wrong := _wrong(run, frame, request):
                return refuted(wrong, exhibits=(Exhibit(f"After step {frame.step}", frame.snapshot),))
            if request.blocks:
                readings += 1
                grown += 0 < held.get(request.name, 0) < len(request.blocks)
                held[request.name] = len(request.blocks)
    if not readings:
        return not_observable("No request ever held a block.")
    if min(held.values()) >= reserved:
        return not_observable(f"Every request used all that max_model_len would reserve, {reserved} block(s).")
    peak = max(run.frames, key=lambda frame: sum(len(request.blocks) for request in frame.running()))
    return _proved(run, peak, reserved, readings, grown)


def _wrong(run: Recording, frame: Frame, request: RequestView) -> str | None:
    """Counted twice: from the engine's own slots, and from what was sent and received."""
    held, expected = len(request.blocks), run.blocks_for(request.slots)
    who = f"After step {frame.step} {request.name!r}"
    if held != expected:
        return f"{who} holds {held} blocks for {request.slots} tokens, not {expected}."
    if request.name not in run.requests:
        return None
    sent = len(run.requests[request.name].prompt)
    received = frame.received.get(request.name, 0)
    most = run.blocks_for(sent + received + len(frame.snapshot.launched))
    if held > most:
        return f"{who} holds {held} blocks, and its {sent} + {received} tokens need {most}."
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
        "peak": {"step": peak.step, "running": len(running), "held": held, "reserved": reserved * len(running)},
    }
    facts = [("prompt", "tokens  blocks  waste  blocks if reserved")]
    facts += [
        (row["name"], f"{row['tokens']:>6} {row['blocks']:>7} {row['waste']:>6} {reserved:>19}") for row in lengths
    ]
    facts += [
        ("at the peak", f"{len(running)} requests held {held} of {run.usable:,} blocks"),
        ("", f"reserving max_model_len={run.about.max_model_len} for each would take {reserved * len(running):,}"),
        ("while decoding", f"tables grew {grown} times, one block at a time"),
    ]
    return Finding(
        Verdict.PROVED,
        "Every table was exactly as long as its tokens need, after every step.",
        f"{run.steps} steps, {run.usable:,} usable blocks, {len(run.requests)} requests, {readings} tables read",
        tuple(facts),
        evidence,
        (Exhibit(f"Step {peak.step}, the peak", peak.snapshot),),
    )


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
    "Blocks are taken as they are used",
    "A request holds ceil(tokens / block size) blocks at every step, whatever its maximum length.",
    (MIXED,),
    judge,
)
