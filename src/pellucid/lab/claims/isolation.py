"""Claim: a prefix is found under its own cache salt and under no other."""

from __future__ import annotations

from typing import Any, NamedTuple

from pellucid.lab.claim import Claim, Recordings
from pellucid.lab.claims.same_output import different_answers
from pellucid.lab.proof import Exhibit, Finding, Table, Verdict, not_observable, refuted
from pellucid.lab.recording import Recording
from pellucid.lab.scenarios.salts import FIRST_ROUND, REST, SALTED, SALTS, SPLIT, WHOLE
from pellucid.lang import say
from pellucid.view import runs


class Question(NamedTuple):
    """``name`` asked for its prefix under ``salt`` and found ``tokens`` in ``blocks``, in frame ``frame``.

    ``mine`` and ``theirs`` are the blocks that held the prompt just before, under its salt and under others;
    ``tempted`` says that the first block of the prompt was among the latter.
    """

    name: str
    salt: str | None
    frame: int
    tokens: int
    blocks: tuple[int, ...]
    mine: frozenset[int]
    theirs: frozenset[int]
    tempted: bool


def judge(recordings: Recordings) -> Finding:
    """Both halves: equal salts hit, others do not; and to equal prompts every answer is the same."""
    run = recordings[SALTS.name]
    questions = _questions(run)
    for question in questions:
        if wrong := _leak(question):
            return refuted(wrong, exhibits=_exhibits(run, [question]))
    hits = [question for question in questions if question.tokens]
    if not hits:
        return not_observable(say("Nobody found anything under the same salt, so there is no cache to be kept apart."))
    kept_out = [question for question in questions if question.tempted and not question.tokens]
    if not any(question.salt for question in kept_out) or not any(question.salt is None for question in kept_out):
        return not_observable(say("Nobody asked while the same tokens could be found under another salt."))
    if other := different_answers(run, (name for name in run.requests if name != SPLIT)):
        return other
    return _proved(run, questions, hits, kept_out)


def _questions(run: Recording) -> list[Question]:
    asked = []
    for name, salt, _ in SALTED:
        index = run.admitted(name) if name in run.requests else None
        if index is None:
            continue
        view = run.frames[index].live(name)
        assert view is not None
        tokens = view.cached_tokens or 0
        blocks = view.blocks[: tokens // run.block_size]
        held = _held(run, index)
        mine = frozenset(block for block, (its, _) in held.items() if its == salt)
        tempted = any(its != salt and place == 0 for its, place in held.values())
        asked.append(Question(name, salt, index, tokens, blocks, mine, frozenset(held) - mine, tempted))
    return asked


def _held(run: Recording, index: int) -> dict[int, tuple[str | None, int]]:
    """The blocks that hold the prompt just before frame ``index``: under which salt, and which block of it."""
    computed: dict[int, tuple[bytes, str | None, int]] = {}
    for frame in run.frames[:index]:
        for view in frame.snapshot.requests:
            for place, block in enumerate(view.blocks):
                identity = frame.snapshot.pool.identities[block]
                if identity is not None and (block not in computed or computed[block][0] != identity):
                    computed[block] = identity, run.requests[view.name].salt, place
    now = run.frames[index - 1].snapshot.pool.identities
    return {block: (salt, place) for block, (identity, salt, place) in computed.items() if now[block] == identity}


def _leak(question: Question) -> str | None:
    """What it found must have been computed under its salt, and before."""
    blocks = set(question.blocks)
    if strange := sorted(blocks & question.theirs):
        return say(
            "{name} found blocks {blocks}, which were computed under another salt.",
            name=question.name,
            blocks=runs(strange),
        )
    if strange := sorted(blocks - question.mine):
        return say(
            "{name} is told to have found blocks {blocks}, which did not hold its prefix.",
            name=question.name,
            blocks=runs(strange),
        )
    return None


def _proved(run: Recording, questions: list[Question], hits: list[Question], kept_out: list[Question]) -> Finding:
    output = len(run.outputs[questions[0].name].tokens)
    same = [question for question in questions if question.name != SPLIT]
    evidence: dict[str, Any] = {
        "prompt": len(run.requests[questions[0].name].prompt),
        "questions": [
            {
                "request": question.name,
                "salt": question.salt,
                "step": run.frames[question.frame].step,
                "hit_tokens": question.tokens,
                "blocks": list(question.blocks),
                "same_salt": sorted(question.mine),
                "other_salts": sorted(question.theirs),
            }
            for question in questions
        ],
        "hits": len(hits),
        "kept_out": len(kept_out),
        "output_tokens": output,
    }
    facts = (
        (say("one prompt"), say("{n} tokens, asked for {times} times", n=evidence["prompt"], times=len(same))),
        (say("same salt"), say("{n} found their prefix, in blocks of their own salt", n=len(hits))),
        (say("other salt"), say("{n} found nothing, though it was there under another", n=len(kept_out))),
        *_split(kept_out),
        (say("the answers"), say("{n} output tokens, the same for all", n=output)),
    )
    return Finding(
        Verdict.PROVED,
        say(
            "{hits} requests found the prefix of their own salt, {out} did not find another's.",
            hits=len(hits),
            out=len(kept_out),
        ),
        say("{steps:,} steps, {usable:,} usable blocks, three salts and none", steps=run.steps, usable=run.usable),
        facts,
        evidence,
        _exhibits(run, kept_out),
        (_table(run, questions),),
    )


def _split(kept_out: list[Question]) -> list[tuple[str, str]]:
    """A fact about the salt that reads like another, run together with the prompt behind it."""
    return [
        (
            say("salt or prompt"),
            say(
                "salt {salt} before token {rest} reads like {other} before {whole}: found nothing",
                salt=question.salt,
                rest=REST,
                other=FIRST_ROUND[0].salt,
                whole=WHOLE,
            ),
        )
        for question in kept_out
        if question.name == SPLIT
    ]


def _table(run: Recording, questions: list[Question]) -> Table:
    header = (say("request"), say("salt"), say("in step"), say("there, same salt"), say("other salts"), say("found"))
    rows = [
        (
            question.name,
            question.salt or "-",
            f"{run.frames[question.frame].step:,}",
            runs(sorted(question.mine)),
            runs(sorted(question.theirs)),
            runs(question.blocks),
        )
        for question in questions
    ]
    return Table(header, tuple(rows))


def _exhibits(run: Recording, questions: list[Question]) -> tuple[Exhibit, ...]:
    frame = run.frames[questions[0].frame]
    return (Exhibit(say("Step {step}: one prompt under several salts", step=frame.step), frame.snapshot),)


ISOLATION = Claim(
    "isolation",
    say("Salts keep prefixes apart"),
    say("A prefix is shared with requests of the same cache salt, and never with those of another or of none."),
    (SALTS,),
    judge,
)
