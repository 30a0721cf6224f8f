"""Engines whose cache mixes salts, whose order or ledger is not what they say, and journals that lie."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from msgspec.structs import replace

from lab import faults
from lab.faults import Recordings, Refutes, in_scenario
from pellucid.kv.acts import AnyAct, Lookup, MissReason, Preempt, Return, Take
from pellucid.kv.snapshot import HitCount


def finds(name: str, blocks: tuple[int, ...]) -> faults.Fault:
    """The request's table begins with ``blocks``, and it is told to have found them."""

    def change(view: faults.RequestView) -> faults.RequestView:
        tokens = len(blocks) * 16
        return replace(view, blocks=(*blocks, *view.blocks[len(blocks) :]), cached_tokens=tokens)

    return in_scenario("salts", lambda run: faults.in_request(run, name, change))


def blue_gets_reds_blocks(recordings: Recordings) -> Recordings:
    run = recordings["salts"]
    admitted = run.admitted("blue")
    assert admitted is not None
    return finds("blue", run.frames[admitted].blocks("red")[:2])(recordings)


def in_act(scenario: str, kind: type, change: Callable[[Any], AnyAct | None], number: int = 0) -> faults.Fault:
    return in_scenario(
        scenario, lambda run: faults.with_the_act(run, lambda act: isinstance(act, kind), change, number)
    )


def calls_itself(policy: str) -> faults.Fault:
    """The engine says that its order of re-use is another."""
    return in_scenario("reuse", lambda run: faults.in_pools(run, lambda pool: replace(pool, reuse_policy=policy)))


def with_misses(scenario: str, reason: MissReason, /, **change: Any) -> faults.Fault:
    """Every miss for ``reason`` is told otherwise."""

    def changed(act: AnyAct) -> AnyAct:
        if not isinstance(act, Lookup):
            return act
        missed = (replace(miss, **change) if miss.reason is reason else miss for miss in act.missed)
        return replace(act, missed=tuple(missed))

    return in_scenario(scenario, lambda run: faults.with_acts(run, changed))


def counts_a_hit_more(run: faults.Recording) -> faults.Recording:
    def change(shot: faults.Snapshot) -> faults.Snapshot:
        more = {kind: HitCount(count.requests, count.asked, count.hit + 16) for kind, count in shot.hits.items()}
        return replace(shot, hits=more)

    return faults.in_frames(run, lambda f: replace(f, snapshot=change(f.snapshot)), where=[len(run.frames) - 1])


def only_the_ends(recordings: Recordings) -> Recordings:
    """Nobody looked between the first step and the last."""
    return {name: replace(run, frames=(run.frames[0], run.frames[-1])) for name, run in recordings.items()}


REFUTES = [
    Refutes("isolation", "another salt finds it", blue_gets_reds_blocks, "blue found blocks 39-40|under another salt"),
    Refutes("isolation", "a hit out of nothing", finds("plain", (70, 71)), "plain is told to have found blocks 70-71"),
    Refutes("isolation", "copies for a hit", finds("red too", (70, 71)), "red too is told to have found blocks 70-71"),
    Refutes(
        "isolation",
        "another answer",
        in_scenario("salts", lambda run: faults.another_token(run, "blue too")),
        "blue too asked the same as red",
    ),
    Refutes("reuse-order", "a stack, it says", calls_itself("vllm-0.24"), "explains all that was seen: free-first"),
    Refutes("reuse-order", "one queue, it says", calls_itself("vllm-0.23"), "explains all that was seen: free-first"),
    Refutes(
        "reuse-order",
        "another order than it says",
        in_act("reuse", Take, lambda act: replace(act, blocks=act.blocks[::-1])),
        "seen: none of the known policies",
    ),
    Refutes(
        "reuse-order",
        "a held block is taken",
        in_act("reuse", Take, lambda act: replace(act, blocks=(1, *act.blocks[1:])), 1),
        "and 5-12 could be had",
    ),
    Refutes(
        "reuse-order",
        "a block is returned twice",
        in_act("reuse", Return, lambda act: replace(act, blocks=(*act.blocks, act.blocks[0])[::-1])),
        "did not hold them all",
    ),
    Refutes(
        "miss-ledger",
        "a miss without a reason",
        in_act("sharing", Lookup, lambda act: replace(act, missed=act.missed[:-1])),
        "alice in the scenario 'sharing': it asked for 70 tokens",
    ),
    Refutes(
        "miss-ledger",
        "a hit that was none",
        in_act("sharing", Lookup, lambda act: replace(act, hit=16, missed=act.missed[1:] if act.hit else ())),
        "which is 16 in all|shares blocks",
    ),
    Refutes("miss-ledger", "another eviction", with_misses("pressure", MissReason.EVICTED, step=7), "no act says so"),
    Refutes(
        "miss-ledger",
        "a wrong reason",
        with_misses("sharing", MissReason.SHORT, reason=MissReason.NEVER_SEEN),
        "0 tokens are told to be shorter",
    ),
    Refutes(
        "miss-ledger",
        "a miss in the wrong place",
        with_misses("salts", MissReason.LAST_BLOCK, block=1),
        "missed for no reason, or for two",
    ),
    Refutes("miss-ledger", "the counters differ", in_scenario("sharing", counts_a_hit_more), "112 tokens are counted"),
    Refutes("journal", "an act is lost", in_act("mixed", Take, lambda act: None, 2), "acts, and"),
    Refutes(
        "journal",
        "an act is altered",
        in_act("pressure", Take, lambda act: replace(act, blocks=act.blocks[::-1])),
        "folds to another snapshot",
    ),
    Refutes(
        "journal",
        "an act about nobody",
        in_act("pressure", Preempt, lambda act: replace(act, request="nobody")),
        "cannot be folded",
    ),
    Refutes("journal", "a loss that nobody can see", only_the_ends, "Nothing would tell"),
]
