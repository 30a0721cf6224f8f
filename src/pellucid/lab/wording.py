"""Sentences of the report that the terminal and the page both say."""

from __future__ import annotations

from pellucid.lab.proof import Proof, Verdict
from pellucid.lab.trial import Report
from pellucid.lang import Sentence, say

TITLE = say("PagedAttention, put to the proof")
BUG = say("A refuted claim is a bug: please report it with the output of --json.")


def engine_facts(report: Report) -> tuple[tuple[str, str], ...]:
    """What was put to the proof, and in which pool."""
    about, pool = report.about, report.pool
    blocks = say("{n:,} blocks of {size} tokens", n=pool.total, size=pool.block_size)
    if pool.nbytes is not None:
        blocks = say("{blocks}, {size:,.1f} MiB", blocks=blocks, size=pool.nbytes / 1024**2)
    usable = say(
        "1 is reserved, {usable:,} are usable: {tokens:,} tokens",
        usable=pool.usable,
        tokens=pool.usable * pool.block_size,
    )
    longest = say(
        "{tokens:,} tokens = {blocks:,} blocks",
        tokens=about.max_model_len,
        blocks=-(-about.max_model_len // pool.block_size),
    )
    model = say("{model}, {dtype} on {device}", model=about.model, dtype=about.dtype, device=about.device)
    return (
        (say("engine"), about.engine),
        (say("model"), model),
        (say("pool"), blocks),
        ("", usable),
        (say("longest request"), longest),
    )


def scope(proof: Proof) -> Sentence:
    """How much the verdict was looked for on."""
    match proof.verdict:
        case Verdict.PROVED:
            return say("Proved on this run: {scope}.", scope=proof.scope)
        case Verdict.REFUTED:
            return say("Refuted on this run: {scope}.", scope=proof.scope)
        case Verdict.NOT_OBSERVABLE:
            return say("Not observable on this run: {scope}.", scope=proof.scope)


def counts(report: Report) -> Sentence:
    """How many claims ended how."""
    ended = say(
        "{proved} proved, {refuted} refuted, {unseen} not observable; {steps} steps in all.",
        proved=report.verdicts[Verdict.PROVED],
        refuted=report.verdicts[Verdict.REFUTED],
        unseen=report.verdicts[Verdict.NOT_OBSERVABLE],
        steps=report.steps,
    )
    if len(report.claims) == 1:
        return say("1 claim: {ended}", ended=ended)
    return say("{claims} claims: {ended}", claims=len(report.claims), ended=ended)
