"""Engines that move their pool, take too many blocks or too few, share wrongly, lose blocks, or miscount them."""

from __future__ import annotations

from msgspec.structs import replace

from lab import faults
from lab.faults import Fault
from pellucid.kv.acts import Launch, Take
from pellucid.kv.memory import PoolMemory


def at_another_place(run: faults.Recording, address: int = 0, nbytes: int = 0) -> faults.Recording:
    """One reading of the memory is off by so much."""

    def moved(frame: faults.Frame) -> faults.Frame:
        assert frame.memory is not None
        return replace(frame, memory=PoolMemory(frame.memory.address + address, frame.memory.nbytes + nbytes))

    return faults.in_frames(run, moved, where=[3])


def adds_a_block(run: faults.Recording) -> faults.Recording:
    def added(frame: faults.Frame) -> faults.Frame:
        pool = frame.snapshot.pool
        more = {"owners": (*pool.owners, 0), "identities": (*pool.identities, None), "fences": (*pool.fences, 0)}
        return replace(frame, snapshot=replace(frame.snapshot, pools=(replace(pool, **more),)))

    return faults.in_frames(run, added, where=[5])


def reserves_everything(run: faults.Recording) -> faults.Recording:
    """What an allocator without paging does, and says that all of it is used."""
    longest = run.about.max_model_len
    request = {"slots": longest, "tables": (tuple(range(1, run.blocks_for(longest) + 1)),)}
    return faults.in_request(run, "short", lambda view: replace(view, **request))


def recomputes(act: faults.AnyAct) -> faults.AnyAct:
    if isinstance(act, Launch) and "bob" in act.requests:
        counts = [count + 48 * (name == "bob") for name, count in zip(act.requests, act.counts, strict=True)]
        return replace(act, counts=tuple(counts))
    return act


def shares_too_much(run: faults.Recording) -> faults.Recording:
    run = faults.with_table(run, "bob", lambda blocks: [1, 2, 3, 4, *blocks[4:]])
    return faults.in_request(run, "bob", lambda view: replace(view, cached_tokens=64))


def told_to_have_found(run: faults.Recording, name: str, tokens: int) -> faults.Recording:
    return faults.in_request(run, name, lambda view: replace(view, cached_tokens=tokens))


def forgets_the_prefix(run: faults.Recording) -> faults.Recording:
    forgotten = (None, None, None, None)
    return faults.in_pools(run, lambda pool: replace(pool, identities=(*forgotten, *pool.identities[4:])))


def avoids_the_hole(blocks: tuple[int, ...]) -> list[int]:
    """Blocks that R2 holds, in place of those of the hole."""
    return [block if block >= 67 else block + 14 for block in blocks]


def moves_a_survivor(run: faults.Recording) -> faults.Recording:
    """R2 makes room: the same table shifted, from the step in which NEW is served."""
    served = run.served("NEW")
    assert served is not None

    def shifted(frame: faults.Frame) -> faults.Frame:
        requests = (
            replace(view, tables=(tuple(block - 14 for block in view.blocks),)) if view.name == "R2" else view
            for view in frame.snapshot.requests
        )
        return replace(frame, snapshot=replace(frame.snapshot, requests=tuple(requests)))

    return faults.in_frames(run, shifted, where=range(served, len(run.frames)))


def without_block_23(pool: faults.PoolView) -> faults.PoolView:
    return replace(pool, reuse_order=tuple(block for block in pool.reuse_order if block != 23))


def loses_a_return(pool: faults.PoolView) -> faults.PoolView:
    return replace(pool, returned=max(0, pool.returned - 1))


THE_POOL = [
    Fault(
        "the pool moves",
        "After one step the KV memory is 64 bytes further on.",
        "sharing",
        lambda run: at_another_place(run, address=64),
        {"pool-fixed": "and is now"},
    ),
    Fault(
        "the pool grows",
        "After one step the KV memory is 4,096 bytes larger.",
        "sharing",
        lambda run: at_another_place(run, nbytes=4096),
        {"pool-fixed": "bytes"},
    ),
    Fault("a block is added", "After one step the pool has a block more.", "mixed", adds_a_block, {"pool-fixed": "81"}),
]

TAKING = [
    Fault(
        "the longest is reserved",
        "`short` holds blocks for the longest request that there could be, as without paging.",
        "mixed",
        reserves_everything,
        {"taken-as-used": "holds 79 blocks"},
    ),
    Fault(
        "a block too many",
        "`long` holds a block more than its tokens need.",
        "mixed",
        lambda run: faults.with_table(run, "long", lambda blocks: (*blocks, 60)),
        {"taken-as-used": "'long' holds 23 blocks for 337 tokens, not 22"},
    ),
    Fault(
        "a block too few",
        "`medium` holds a block less than its tokens need.",
        "mixed",
        lambda run: faults.with_table(run, "medium", lambda blocks: blocks[:-1]),
        {"taken-as-used": "'medium' holds 3 blocks"},
    ),
]

SHARING = [
    Fault(
        "copies instead of sharing",
        "The prefix of `bob` is found, and he gets copies of its blocks.",
        "sharing",
        lambda run: faults.with_table(run, "bob", lambda blocks: [70, 71, 72, *blocks[3:]]),
        {"sharing": "found 48 tokens, and 0 blocks"},
    ),
    Fault(
        "one owner is counted",
        "A block that several tables hold counts one owner.",
        "sharing",
        lambda run: faults.with_owners(run, lambda owners: min(owners, 1)),
        {"sharing": "counts 1 owners"},
    ),
    Fault(
        "the prefix is computed again",
        "`bob` finds 48 tokens, and they are computed all the same.",
        "sharing",
        lambda run: faults.with_acts(run, recomputes),
        {"sharing": "to compute"},
    ),
    Fault(
        "unequal tokens are shared",
        "`bob` shares a fourth block of `alice`, which holds other tokens than his.",
        "sharing",
        shares_too_much,
        {"sharing": "only 61 of their prompts are equal"},
    ),
    Fault(
        "a block comes back empty",
        "`carol` finds blocks that had lost their content before she came.",
        "sharing",
        forgets_the_prefix,
        {"sharing": "was free"},
    ),
    Fault(
        "an equal block behind another prefix",
        "`dave` brings the first block twice, and finds it in the second place too.",
        "sharing",
        lambda run: told_to_have_found(run, "dave", 32),
        {"sharing": "dave is told to have found 32 tokens, and only 16"},
    ),
    Fault(
        "the order of tokens does not count",
        "`erin` finds a block that holds her tokens the other way round.",
        "sharing",
        lambda run: told_to_have_found(run, "erin", 16),
        {"sharing": "erin is told to have found 16 tokens, and only 0"},
    ),
    Fault(
        "another answer after a hit",
        "`carol`, who finds a prefix, gets another last token than without the cache.",
        "sharing",
        lambda run: faults.another_token(run, "carol"),
        {"sharing": "of carol differs"},
    ),
]

HOLES = [
    Fault(
        "never served",
        "`NEW` waits for a contiguous run that never comes, while 35 blocks are free.",
        "holes",
        faults.never_served,
        {"holes": "was not served"},
    ),
    Fault(
        "another's blocks",
        "`NEW` gets blocks that `R2` holds, in place of those of the hole.",
        "holes",
        lambda run: faults.with_table(run, "NEW", avoids_the_hole),
        {"holes": "which were not free"},
    ),
    Fault(
        "one block twice",
        "The first block of `NEW` is its last one too.",
        "holes",
        lambda run: faults.with_table(run, "NEW", lambda blocks: (*blocks[:-1], blocks[0])),
        {"holes": "has 26 different", "contiguous": "it has 26 different ones"},
    ),
    Fault(
        "a survivor is moved",
        "`R2` is shifted by 14 blocks to make room for `NEW`.",
        "holes",
        moves_a_survivor,
        {"holes": "R2"},
    ),
    Fault(
        "a block of the hole is lost",
        "Block 23 is in no table, and not among those to be re-used.",
        "holes",
        lambda run: faults.in_pools(run, without_block_23),
        {"holes": "neither free nor held"},
    ),
    Fault(
        "another answer out of holes",
        "`NEW`, served from scattered blocks, gets another last token than alone.",
        "holes",
        lambda run: faults.another_token(run, "NEW"),
        {"holes": "of NEW differs"},
    ),
]

BOOKS = [
    Fault(
        "a return is lost",
        "The pool counts a returned block less than there were.",
        "mixed",
        lambda run: faults.in_pools(run, loses_a_return),
        {"accounting": "I9"},
    ),
    Fault(
        "owners count twice",
        "Every block counts twice the owners that it has.",
        "holes",
        lambda run: faults.with_owners(run, lambda owners: 2 * owners),
        {"accounting": "I2"},
    ),
    Fault(
        "takes are not written down",
        "Blocks are taken, and the journal does not tell.",
        "alone",
        lambda run: faults.with_acts(run, lambda act: None if isinstance(act, Take) else act),
        {"accounting": "I3|I12"},
    ),
    Fault(
        "broken inside",
        "The engine's own audit finds an invariant broken that nobody can check from outside.",
        "mixed",
        lambda run: faults.in_frames(run, lambda f: replace(f, violations=("I6 is broken",)), where=[4]),
        {"accounting": "I6 is broken"},
    ),
]

FAULTS = [*THE_POOL, *TAKING, *SHARING, *HOLES, *BOOKS]
