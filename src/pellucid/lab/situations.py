"""The situations of ``pellucid step``: a few requests in a pool so small that nothing can be overlooked.

Lengths are in blocks, so that they keep their shape whatever the block size; the pool may be made
larger or smaller, and what then does not arise is said.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from pellucid.kv.acts import AnyAct, Close, Launch, Lookup, MissReason, Preempt, Return, Share, Take
from pellucid.kv.table import RequestStatus
from pellucid.lab.claims.holes import longest_run
from pellucid.lab.walk import Arrival, Piece, Seen, Situation, Walk
from pellucid.lang import names_of, say

POOL: dict[str, Any] = {"block_size": 4, "num_gpu_blocks_override": 25, "max_num_batched_tokens": 2048}
PREFIX = Piece("prefix", blocks=3)


def _mine(walk: Walk, kind: type[AnyAct], name: str) -> list[Any]:
    return [act for act in walk.acts() if isinstance(act, kind) and getattr(act, "request", None) == name]


def _blocks(acts: Iterable[Any]) -> list[int]:
    return [block for act in acts for block in act.blocks]


def _hole(walk: Walk) -> Seen:
    served = next(stride for stride in walk.strides if any(stride.acts.count(t) for t in _mine(walk, Take, "NEW")))
    took = served.after.table("NEW") or tuple(_blocks(_mine(walk, Take, "NEW")[:1]))
    longest = longest_run(served.before.pool.reuse_order)
    reused = set(took) & set(_blocks(_mine(walk, Return, "R1")))
    if not reused or len(took) <= len(longest):
        return Seen(
            False,
            say(
                "NEW took {taken} blocks where {longest} lay side by side: here it needed no hole.",
                taken=len(took),
                longest=len(longest),
            ),
        )
    return Seen(
        True,
        say(
            "NEW got its {taken} blocks where at most {longest} lay side by side, {reused} of them from the hole that "
            "R1 left; {movements}.",
            taken=len(took),
            longest=len(longest),
            reused=len(reused),
            movements=_movements(walk),
        ),
    )


def _movements(walk: Walk) -> str:
    """Whether tables only ever grew at their end."""
    moved = {
        view.name
        for stride in walk.strides
        for view in stride.before.requests
        for now in stride.after.requests
        if now.name == view.name and now.blocks and now.blocks[: len(view.blocks)] != view.blocks
    }
    if moved:
        return say("{names} got other blocks meanwhile", names=names_of(sorted(moved)))
    return say("nobody was moved for it")


def _sharing(walk: Walk) -> Seen:
    shares = [act for act in walk.acts() if isinstance(act, Share) and len(act.revived) < len(act.blocks)]
    most = max(max(stride.after.pool.owners) for stride in walk.strides)
    if most < 2:
        return Seen(False, say("nobody found another's blocks while that one was alive."))
    shared = sum(len(act.blocks) - len(act.revived) for act in shares)
    left = next(stride for stride in walk.strides if any(stride.acts.count(act) for act in _mine(walk, Close, "alice")))
    stay = sum(left.after.pool.owners[block] > 0 for block in _blocks(_mine(walk, Return, "alice")))
    return Seen(
        True,
        say(
            "{shared} times a request became one more owner of a live block instead of filling one of its own, up to "
            "{most} owners at once; when alice left, {stay} of her blocks stayed with the others.",
            shared=shared,
            most=most,
            stay=stay,
        ),
    )


def _revival(walk: Walk) -> Seen:
    revived = _blocks_revived(_mine(walk, Share, "bob"))
    lost = [miss for act in _mine(walk, Lookup, "carol") for miss in act.missed if miss.reason is MissReason.EVICTED]
    if not revived:
        return Seen(False, say("bob revived nothing: in this pool alice's blocks were gone when he came."))
    then = say("carol found hers too, as in this pool flood had to evict none of them.")
    if lost:
        then = say("carol missed {n} tokens that had been evicted for flood.", n=sum(miss.tokens for miss in lost))
    return Seen(
        True,
        say(
            "bob revived {blocks} blocks that nobody owned, {tokens} tokens that needed no computing; {then}",
            blocks=revived,
            tokens=revived * walk.pool.block_size,
            then=then,
        ),
    )


def _blocks_revived(shares: Iterable[Share]) -> int:
    return sum(len(act.revived) for act in shares)


def _pressure(walk: Walk) -> Seen:
    preempted = [act for act in walk.acts() if isinstance(act, Preempt)]
    if not preempted:
        return Seen(False, say("nobody was pre-empted: {n} usable blocks were enough.", n=walk.pool.usable))
    undisturbed = walk.undisturbed()
    other = [name for name, output in walk.outputs.items() if output.tokens != undisturbed[name].tokens]
    start = _preempted(preempted)
    if not other:
        count = len(walk.outputs[preempted[0].request].tokens)
        return Seen(
            True,
            say("{start}; its {n} output tokens are those that it gets alone on an idle engine.", start=start, n=count),
        )
    why = say("which it must not")
    if not walk.about.exact:
        why = say("as {dtype} rounds in another order", dtype=walk.about.dtype)
    return Seen(
        True,
        say(
            "{start}; the output of {names} differs from that on an idle engine, {why}.",
            start=start,
            names=names_of(other),
            why=why,
        ),
    )


def _preempted(preempted: list[Preempt]) -> str:
    first = preempted[0]
    times = say("once")
    if len(preempted) > 1:
        times = say("first, of {n} pre-emptions", n=len(preempted))
    if first.by == first.request:
        return say("{name} pre-empted itself {times}, waited and went on", name=first.request, times=times)
    return say(
        "{name} was pre-empted for {by} {times}, waited and went on", name=first.request, by=first.by, times=times
    )


def _chunked(walk: Walk) -> Seen:
    prompt = walk.length("essay")
    chunks: list[int] = []
    beside = 0
    nobody_waited = True
    for stride in walk.strides:
        for act in stride.acts:
            if isinstance(act, Launch) and "essay" in act.requests and sum(chunks) < prompt:
                chunks.append(act.counts[act.requests.index("essay")])
                beside += sum(act.counts) - chunks[-1]
                running = {view.name for view in stride.before.requests if view.status is RequestStatus.RUNNING}
                nobody_waited &= running <= set(act.requests)
    if len(chunks) < 2 or not beside:
        most = walk.about.max_num_batched_tokens
        return Seen(False, say("essay's {prompt} tokens fitted into one step of {most}.", prompt=prompt, most=most))
    seen = say(
        "essay's prompt of {prompt} tokens was computed in {n} chunks ({chunks}), and meanwhile the others computed "
        "{beside} tokens of their own",
        prompt=prompt,
        n=len(chunks),
        chunks=" + ".join(map(str, chunks)),
        beside=beside,
    )
    if nobody_waited:
        return Seen(True, say("{seen}: nobody who was running had to wait for it.", seen=seen))
    return Seen(True, say("{seen}.", seen=seen))


HOLE = Situation(
    "hole",
    say("a hole is re-used"),
    say(
        "Three requests stand side by side; R1 leaves a hole between the others. Watch where NEW goes, which is larger "
        "than the hole and larger than the rest."
    ),
    {**POOL, "enable_prefix_caching": False},
    (
        Arrival("R0", (Piece("R0", 6, 1),), 4),
        Arrival("R1", (Piece("R1", 6, 1),), 2),
        Arrival("R2", (Piece("R2", 6, 1),), 4),
        Arrival("NEW", (Piece("NEW", 8, 1),), 2, step=2),
    ),
    _hole,
)
SHARING = Situation(
    "sharing",
    say("two live owners of one block"),
    say(
        "alice, bob and carol begin with the same 3 blocks of tokens. Watch the digits on the map: they count the "
        "owners of a block, which exists once."
    ),
    POOL,
    (
        Arrival("alice", (PREFIX, Piece("alice", 0, 2)), 4),
        Arrival("bob", (PREFIX, Piece("bob", 0, 3)), 5, step=2),
        Arrival("carol", (PREFIX,), 3, step=3),
    ),
    _sharing,
)
REVIVAL = Situation(
    "revival",
    say("blocks that outlive their owner"),
    say(
        "alice ends and leaves cached blocks (+) that nobody owns. Watch bob take them back to life, and flood, who "
        "needs room, take some of them from carol."
    ),
    POOL,
    (
        Arrival("alice", (PREFIX, Piece("alice", 0, 1)), 2),
        Arrival("bob", (PREFIX, Piece("bob", 0, 2)), 2, after="alice"),
        Arrival("flood", (Piece("flood", 21, 1),), 2, after="bob"),
        Arrival("carol", (PREFIX, Piece("carol", 0, 3)), 2, after="flood"),
    ),
    _revival,
)
PRESSURE = Situation(
    "pressure",
    say("the pool is full"),
    say(
        "old and young fill the pool, and then old needs one block more. Watch who gives way, why small has to wait "
        "although it would fit, and what of young's work is still there when it comes back."
    ),
    POOL,
    (
        Arrival("old", (Piece("old", 12, -1),), 5),
        Arrival("young", (Piece("young", 12, -1),), 5),
        Arrival("small", (Piece("small", 0, 3),), 2, step=4),
    ),
    _pressure,
)
CHUNKED = Situation(
    "chunked",
    say("a long prompt in pieces"),
    say(
        "A step may compute 8 tokens. Watch how the long prompt of essay gets what chat and talk leave of that, step "
        "by step, and how they get a token in every step all the same."
    ),
    {**POOL, "max_num_batched_tokens": 8, "enable_prefix_caching": False},
    (
        Arrival("chat", (Piece("chat", 0, 3),), 8),
        Arrival("talk", (Piece("talk", 0, 2),), 8),
        Arrival("essay", (Piece("essay", 5, 3),), 2, step=2),
    ),
    _chunked,
)

SITUATIONS = {situation.name: situation for situation in (HOLE, SHARING, REVIVAL, PRESSURE, CHUNKED)}
"""In the order in which they are worth walking."""
