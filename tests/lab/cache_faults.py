"""Engines whose cache mixes salts, whose order or ledger is not what they say, and journals that lie."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from msgspec.structs import replace

from lab import faults
from lab.faults import Fault, Recording
from pellucid.kv.acts import AnyAct, Lookup, MissReason, Preempt, Return, Take
from pellucid.kv.snapshot import HitCount

Change = Callable[[Recording], Recording]


def finds(name: str, blocks: tuple[int, ...]) -> Change:
    """The request's table begins with ``blocks``, and it is told to have found them."""

    def change(view: faults.RequestView) -> faults.RequestView:
        tokens = len(blocks) * 16
        return replace(view, tables=((*blocks, *view.blocks[len(blocks) :]),), cached_tokens=tokens)

    return lambda run: faults.in_request(run, name, change)


def tan_gets_reds_blocks(run: Recording) -> Recording:
    admitted = run.admitted("tan")
    assert admitted is not None
    return finds("tan", run.frames[admitted].blocks("red")[:2])(run)


def split_gets_reds_blocks(run: Recording) -> Recording:
    admitted = run.admitted("red again")
    assert admitted is not None
    return finds("split", run.frames[admitted].blocks("red again")[:2])(run)


def in_act(kind: type, change: Callable[[Any], AnyAct | None], number: int = 0) -> Change:
    return lambda run: faults.with_the_act(run, lambda act: isinstance(act, kind), change, number)


def calls_itself(policy: str) -> Change:
    """The engine says that its order of re-use is another."""
    return lambda run: faults.in_pools(run, lambda pool: replace(pool, reuse_policy=policy))


def with_misses(reason: MissReason, /, **change: Any) -> Change:
    """Every miss for ``reason`` is told otherwise."""

    def changed(act: AnyAct) -> AnyAct:
        if not isinstance(act, Lookup):
            return act
        missed = (replace(miss, **change) if miss.reason is reason else miss for miss in act.missed)
        return replace(act, missed=tuple(missed))

    return lambda run: faults.with_acts(run, changed)


def counts_a_hit_more(run: Recording) -> Recording:
    def change(shot: faults.Snapshot) -> faults.Snapshot:
        more = {kind: HitCount(count.requests, count.asked, count.hit + 16) for kind, count in shot.hits.items()}
        return replace(shot, hits=more)

    return faults.in_frames(run, lambda f: replace(f, snapshot=change(f.snapshot)), where=[len(run.frames) - 1])


def only_the_ends(run: Recording) -> Recording:
    return replace(run, frames=(run.frames[0], run.frames[-1]))


ISOLATION = [
    Fault(
        "another salt finds it",
        "`tan` shares two blocks of `red`, which has the same tokens under another salt.",
        "salts",
        tan_gets_reds_blocks,
        {"isolation": "tan found blocks 43-44|under another salt"},
    ),
    Fault(
        "salt and prompt run together",
        "`split` finds two blocks of `red`: its salt and its prompt, one written after the other, read like hers.",
        "salts",
        split_gets_reds_blocks,
        {"isolation": "split found blocks 43-44|under another salt"},
    ),
    Fault(
        "a hit out of nothing",
        "`plain` is told to have found two blocks that held nothing.",
        "salts",
        finds("plain", (70, 71)),
        {"isolation": "plain is told to have found blocks 70-71"},
    ),
    Fault(
        "copies for a hit",
        "`red too` finds the prefix of `red`, and gets other blocks than those that have it.",
        "salts",
        finds("red too", (70, 71)),
        {"isolation": "red too is told to have found blocks 70-71"},
    ),
    Fault(
        "another answer under a salt",
        "`tan too` gets another last token than `red`, who asked the same.",
        "salts",
        lambda run: faults.another_token(run, "tan too"),
        {"isolation": "tan too asked the same as red"},
    ),
]

ORDER = [
    Fault(
        "a stack, it says",
        "The engine re-uses in one order, and says vllm-0.24.",
        "reuse",
        calls_itself("vllm-0.24"),
        {"reuse-order": "explains all that was seen: free-first"},
    ),
    Fault(
        "one queue, it says",
        "The engine re-uses in one order, and says vllm-0.23.",
        "reuse",
        calls_itself("vllm-0.23"),
        {"reuse-order": "explains all that was seen: free-first"},
    ),
    Fault(
        "no known order",
        "The first table that is taken reads backwards.",
        "reuse",
        in_act(Take, lambda act: replace(act, blocks=act.blocks[::-1])),
        {"reuse-order": "seen: none of the known policies"},
    ),
    Fault(
        "a held block is taken",
        "The second table begins with block 1, which the first one holds.",
        "reuse",
        in_act(Take, lambda act: replace(act, blocks=(1, *act.blocks[1:])), 1),
        {"reuse-order": "and 5-12 could be had"},
    ),
    Fault(
        "a block is returned twice",
        "The first table that comes back names one of its blocks twice.",
        "reuse",
        in_act(Return, lambda act: replace(act, blocks=(*act.blocks, act.blocks[0])[::-1])),
        {"reuse-order": "did not hold them all"},
    ),
]

MISSES = [
    Fault(
        "a miss without a reason",
        "`alice` misses 70 tokens, and reasons are given for fewer.",
        "sharing",
        in_act(Lookup, lambda act: replace(act, missed=act.missed[:-1])),
        {"miss-ledger": "alice in the scenario 'sharing': it asked for 70 tokens"},
    ),
    Fault(
        "a hit that was none",
        "`alice`, who came first, is told to have hit 16 tokens.",
        "sharing",
        in_act(Lookup, lambda act: replace(act, hit=16, missed=act.missed[1:] if act.hit else ())),
        {"miss-ledger": "which is 16 in all|shares blocks"},
    ),
    Fault(
        "another eviction",
        "Misses are put down to an eviction at a step in which there was none.",
        "pressure",
        with_misses(MissReason.EVICTED, step=7),
        {"miss-ledger": "no act says so"},
    ),
    Fault(
        "a wrong reason",
        "What is shorter than a block is told to be never seen.",
        "sharing",
        with_misses(MissReason.SHORT, reason=MissReason.NEVER_SEEN),
        {"miss-ledger": "0 tokens are told to be shorter"},
    ),
    Fault(
        "a miss in the wrong place",
        "What the last-block rule costs is told of another block than the last.",
        "salts",
        with_misses(MissReason.LAST_BLOCK, block=1),
        {"miss-ledger": "missed for no reason, or for two"},
    ),
    Fault(
        "the counters differ",
        "At the end the hit counters have 16 tokens more than the lookups.",
        "sharing",
        counts_a_hit_more,
        {"miss-ledger": "128 tokens are counted"},
    ),
]

JOURNALS = [
    Fault(
        "an act is lost",
        "The journal lacks a take.",
        "mixed",
        in_act(Take, lambda act: None, 2),
        {"journal": "acts, and"},
    ),
    Fault(
        "an act is altered",
        "The first take is written down backwards.",
        "pressure",
        in_act(Take, lambda act: replace(act, blocks=act.blocks[::-1])),
        {"journal": "folds to another snapshot"},
    ),
    Fault(
        "an act about nobody",
        "A pre-emption is written down under a name that no request has.",
        "pressure",
        in_act(Preempt, lambda act: replace(act, request="nobody")),
        {"journal": "cannot be folded"},
    ),
    Fault(
        "a loss that nobody can see",
        "Nobody looked between the first step and the last, so an act could be lost unnoticed.",
        None,
        only_the_ends,
        {"journal": "Nothing would tell"},
    ),
]

FAULTS = [*ISOLATION, *ORDER, *MISSES, *JOURNALS]
