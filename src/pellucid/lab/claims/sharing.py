"""Claim: equal prefixes share the same physical blocks, while both live and after one has ended."""

from __future__ import annotations

from itertools import takewhile
from typing import Any, NamedTuple

from pellucid.kv.acts import Launch
from pellucid.kv.block import BlockState
from pellucid.lab.claim import Claim, Recordings
from pellucid.lab.claims.same_output import different_output
from pellucid.lab.proof import Exhibit, Finding, Verdict, not_observable, refuted
from pellucid.lab.recording import Frame, Recording
from pellucid.lab.scenarios.sharing import DOUBLED, FIRST, LATER, SECOND, SHARING, TURNED, UNSHARED
from pellucid.lang import say
from pellucid.view import runs
from pellucid.view.block_map import STATES


class Hit(NamedTuple):
    """``name`` found a prefix: its ``blocks``, ``tokens`` in all, in frame ``after``; ``before`` is the one before.

    ``computed`` counts the tokens that it computed over its whole life, None without a journal.
    """

    name: str
    blocks: tuple[int, ...]
    tokens: int
    before: Frame
    after: Frame
    computed: int | None


class Lookalike(NamedTuple):
    """``name`` brought what is like the prefix: its first ``equal`` tokens had been there, in whole blocks.

    It is told to have found ``tokens``, and computed ``computed``, None without a journal.
    """

    name: str
    equal: int
    tokens: int
    computed: int | None


def judge(recordings: Recordings) -> Finding:
    """Two live owners, a revival, no lookalike, nothing recomputed, and the answers that come without the cache."""
    run, plain = recordings[SHARING.name], recordings[UNSHARED.name]
    source = _first_table(run)
    if not source:
        return not_observable(_never_served(FIRST))
    hits = []
    for name in (SECOND, LATER):
        hit = _hit(run, name, source)
        if isinstance(hit, Finding):
            return hit
        hits.append(hit)
    live, revival = hits
    if other := _two_owners(live) or _revived(revival):
        return other
    lookalikes = []
    for name in (DOUBLED, TURNED):
        lookalike = _lookalike(run, name)
        if isinstance(lookalike, Finding):
            return lookalike
        lookalikes.append(lookalike)
    if other := different_output(run, plain, run.requests, say("without the cache")):
        return other
    return _proved(run, source, live, revival, lookalikes)


def _never_served(name: str) -> str:
    return say("{name} was never served, so there was nothing to share.", name=name)


def _first_table(run: Recording) -> tuple[int, ...]:
    index = run.served(FIRST)
    return () if index is None else run.frames[index].blocks(FIRST)


def _hit(run: Recording, name: str, source: tuple[int, ...]) -> Hit | Finding:
    """What ``name`` found: its own count, its table beside that of the first, and what it computed must agree."""
    index = run.admitted(name)
    if index is None:
        return not_observable(_never_served(name))
    before, after = run.frames[index - 1], run.frames[index]
    view = after.live(name)
    assert view is not None
    blocks = _leading(source, view.blocks)
    tokens = len(blocks) * run.block_size
    told = view.cached_tokens or 0
    if not blocks and not told:
        return not_observable(say("{name} found nothing of its prefix in the cache: nothing was shared.", name=name))
    if told != tokens:
        return refuted(
            say(
                "{name} is told to have found {told} tokens, and {shared} blocks of its table ({table}) are those of "
                "{first} ({source}).",
                name=name,
                told=told,
                shared=len(blocks),
                table=runs(view.blocks),
                first=FIRST,
                source=runs(source),
            ),
            exhibits=(Exhibit(say("Step {step}", step=after.step), after.snapshot),),
        )
    equal = len(_leading(run.requests[FIRST].prompt, run.requests[name].prompt))
    if tokens > equal:
        return refuted(
            say(
                "{name} shares {tokens} tokens with {first}, and only {equal} of their prompts are equal.",
                name=name,
                tokens=tokens,
                first=FIRST,
                equal=equal,
            )
        )
    computed = _computed(run, name)
    if wrong := _recomputed(run, name, tokens, computed):
        return refuted(wrong)
    return Hit(name, blocks, tokens, before, after, computed)


def _lookalike(run: Recording, name: str) -> Lookalike | Finding:
    """What ``name`` found: no more than whole blocks that are equal from the first token on."""
    index = run.admitted(name)
    if index is None:
        return not_observable(_never_served(name))
    frame = run.frames[index]
    view = frame.live(name)
    assert view is not None
    told = view.cached_tokens or 0
    prompt = run.requests[name].prompt
    equal = max(len(_leading(other.prompt, prompt)) for who, other in run.requests.items() if who != name)
    equal -= equal % run.block_size
    if told > equal:
        return refuted(
            say(
                "{name} is told to have found {told} tokens, and only {equal} of its prompt had been there "
                "behind the same tokens, in the same order.",
                name=name,
                told=told,
                equal=equal,
            ),
            exhibits=(Exhibit(say("Step {step}", step=frame.step), frame.snapshot),),
        )
    computed = _computed(run, name)
    if wrong := _recomputed(run, name, told, computed):
        return refuted(wrong)
    return Lookalike(name, equal, told, computed)


def _leading(one: tuple[int, ...], other: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(mine for mine, _ in takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False)))


def _computed(run: Recording, name: str) -> int | None:
    """Tokens of ``name`` in all launched plans."""
    if run.acts is None:
        return None
    launches = (act for act in run.acts if isinstance(act, Launch) and name in act.requests)
    return sum(act.counts[act.requests.index(name)] for act in launches)


def _recomputed(run: Recording, name: str, hit: int, computed: int | None) -> str | None:
    """Everything but the hit and the last output token is computed, once."""
    output = run.outputs.get(name)
    if computed is None or output is None or not output.finished:
        return None
    needed = len(run.requests[name].prompt) + len(output.tokens) - 1 - hit
    if computed == needed:
        return None
    return say(
        "{name} computed {computed} tokens, and with {hit} found in the cache it had {needed} to compute.",
        name=name,
        computed=computed,
        hit=hit,
        needed=needed,
    )


def _two_owners(hit: Hit) -> Finding | None:
    """While the first lives, each shared block must stand in both tables and count two owners."""
    if hit.after.live(FIRST) is None or not hit.after.blocks(FIRST):
        return not_observable(
            say("{first} had ended when {name} began: no block had two live owners.", first=FIRST, name=hit.name)
        )
    holders = [set(hit.after.blocks(FIRST)), set(hit.after.blocks(hit.name))]
    for block in hit.blocks:
        owners = hit.after.snapshot.pool.owners[block]
        if owners != 2 or not all(block in holder for holder in holders):
            return refuted(
                say(
                    "Block {block} is shared by {first} and {name} and counts {owners} owners.",
                    block=block,
                    first=FIRST,
                    name=hit.name,
                    owners=owners,
                ),
                exhibits=(Exhibit(say("Step {step}", step=hit.after.step), hit.after.snapshot),),
            )
    return None


def _revived(hit: Hit) -> Finding | None:
    """With nobody alive each block must have been kept, without an owner; then it has one."""
    before, after = hit.before.snapshot.pool, hit.after.snapshot.pool
    for block in hit.blocks:
        state, owners = before.state(block), after.owners[block]
        if state is BlockState.HELD:
            return not_observable(
                say(
                    "Block {block} still had an owner when {name} came: nothing was revived.",
                    block=block,
                    name=hit.name,
                )
            )
        if state is not BlockState.CACHED or owners != 1:
            return refuted(
                say(
                    "Block {block} was {state} before {name} found it, and counts {owners} owners after.",
                    block=block,
                    state=STATES[state],
                    name=hit.name,
                    owners=owners,
                )
            )
    return None


def _proved(run: Recording, source: tuple[int, ...], live: Hit, revival: Hit, lookalikes: list[Lookalike]) -> Finding:
    saved = live.tokens + revival.tokens
    outputs = {name: len(run.outputs[name].tokens) for name in run.requests}
    evidence: dict[str, Any] = {
        "first_table": list(source),
        "live": _evidence(run, live),
        "revival": _evidence(run, revival),
        "lookalikes": [
            {
                "request": lookalike.name,
                "equal_tokens": lookalike.equal,
                "hit_tokens": lookalike.tokens,
                "computed_tokens": lookalike.computed,
            }
            for lookalike in lookalikes
        ],
        "tokens_saved": saved,
        "output_tokens": outputs,
    }
    facts = [
        (say("in common"), _common(run, live)),
        (FIRST, say("table {blocks}", blocks=runs(source))),
        *_facts(run, live, say("owners 1 -> 2 while both live")),
        *_facts(run, revival, say("owners 0 -> 1, back to life")),
        *_alike(run, *lookalikes),
        (
            say("the answers"),
            say("{counts} output tokens, the same without the cache", counts=" + ".join(map(str, outputs.values()))),
        ),
    ]
    return Finding(
        Verdict.PROVED,
        say(
            "{live} blocks had two live owners, {revived} came back to life, "
            "and {saved} tokens were not computed again.",
            live=len(live.blocks),
            revived=len(revival.blocks),
            saved=saved,
        ),
        say(
            "{steps} steps, {usable:,} usable blocks, {requests} requests, with the cache and without",
            steps=run.steps,
            usable=run.usable,
            requests=len(run.requests),
        ),
        tuple(facts),
        evidence,
        _exhibits(live, revival),
    )


def _exhibits(live: Hit, revival: Hit) -> tuple[Exhibit, ...]:
    kept = say("Step {step}: both have ended, the blocks are kept", step=revival.before.step)
    back = say("Step {step}: {name} brings them back to life", step=revival.after.step, name=LATER)
    return (
        Exhibit(
            say("Step {step}: {one} and {other} share", step=live.after.step, one=FIRST, other=SECOND),
            live.after.snapshot,
        ),
        Exhibit(kept, revival.before.snapshot),
        Exhibit(back, revival.after.snapshot),
    )


def _common(run: Recording, hit: Hit) -> str:
    return say(
        "{tokens} tokens, {blocks} whole blocks of {size} among them",
        tokens=_equal(run, hit),
        blocks=len(hit.blocks),
        size=run.block_size,
    )


def _equal(run: Recording, hit: Hit) -> int:
    return len(_leading(run.requests[FIRST].prompt, run.requests[hit.name].prompt))


def _facts(run: Recording, hit: Hit, owners: str) -> list[tuple[str, str]]:
    facts: list[tuple[str, str]] = [
        (hit.name, say("table {blocks}", blocks=runs(hit.after.blocks(hit.name)))),
        (
            "",
            say("blocks {blocks} are those of {first}: {owners}", blocks=runs(hit.blocks), first=FIRST, owners=owners),
        ),
    ]
    if hit.computed is not None:
        prompt = len(run.requests[hit.name].prompt)
        text = say(
            "computed {computed} of its {prompt} prompt tokens, found {found}",
            computed=prompt - hit.tokens,
            prompt=prompt,
            found=hit.tokens,
        )
        facts.append(("", text))
    return facts


def _alike(run: Recording, doubled: Lookalike, turned: Lookalike) -> list[tuple[str, str]]:
    prompts = [len(run.requests[each.name].prompt) for each in (doubled, turned)]
    return [
        (
            doubled.name,
            say("first block twice: found {found} of {prompt} tokens", found=doubled.tokens, prompt=prompts[0]),
        ),
        (
            turned.name,
            say("first block backwards: found {found} of {prompt} tokens", found=turned.tokens, prompt=prompts[1]),
        ),
    ]


def _evidence(run: Recording, hit: Hit) -> dict[str, Any]:
    pools = hit.before.snapshot.pool, hit.after.snapshot.pool
    return {
        "request": hit.name,
        "step": hit.after.step,
        "table": list(hit.after.blocks(hit.name)),
        "shared": list(hit.blocks),
        "owners_before": [pools[0].owners[block] for block in hit.blocks],
        "owners_after": [pools[1].owners[block] for block in hit.blocks],
        "equal_tokens": _equal(run, hit),
        "hit_tokens": hit.tokens,
        "computed_tokens": hit.computed,
    }


PREFIX_SHARED = Claim(
    "sharing",
    say("Equal prefixes share blocks"),
    say(
        "Requests with equal prefixes, and no others, use the same physical blocks, compute them once, "
        "and answer as if they had not."
    ),
    (SHARING, UNSHARED),
    judge,
)
