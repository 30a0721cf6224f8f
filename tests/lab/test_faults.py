"""A claim that no fault refutes proves nothing: each is shown recordings of an engine that breaks it."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from lab import cache_faults, faults, placement_faults, scheduling_faults
from lab.faults import Fault, in_scenario
from pellucid.kv.acts import Launch, Take
from pellucid.kv.memory import PoolMemory
from pellucid.lab.claims import CLAIMS
from pellucid.lab.proof import Verdict
from pellucid.lab.trial import Plays

JUDGES = {claim.id: claim for claim in CLAIMS}


def memory(address: int = 0, nbytes: int = 0) -> Fault:
    """One reading of one scenario is off by so much."""

    def moved(frame: faults.Frame) -> faults.Frame:
        assert frame.memory is not None
        return replace(frame, memory=PoolMemory(frame.memory.address + address, frame.memory.nbytes + nbytes))

    return in_scenario("sharing", lambda run: faults.in_frames(run, moved, where=[3]))


def one_block_more(pool: faults.PoolView) -> faults.PoolView:
    return replace(pool, owners=(*pool.owners, 0), identities=(*pool.identities, None), fences=(*pool.fences, 0))


def reserves_everything(run: faults.Recording) -> faults.Recording:
    """What an allocator without paging does, and says that all of it is used."""
    longest = run.about.max_model_len
    request = {"slots": longest, "blocks": tuple(range(1, run.blocks_for(longest) + 1))}
    return faults.in_request(run, "short", lambda view: replace(view, **request))


def bob_gets_copies(run: faults.Recording) -> faults.Recording:
    """The prefix found, and copied instead of shared."""
    return faults.with_table(run, "bob", lambda blocks: [70, 71, 72, *blocks[3:]])


def recomputes(act: faults.AnyAct) -> faults.AnyAct:
    if isinstance(act, Launch) and "bob" in act.requests:
        counts = [count + 48 * (name == "bob") for name, count in zip(act.requests, act.counts, strict=True)]
        return replace(act, counts=tuple(counts))
    return act


def shares_too_much(run: faults.Recording) -> faults.Recording:
    """Alice's fourth block holds other tokens than bob's."""
    run = faults.with_table(run, "bob", lambda blocks: [1, 2, 3, 4, *blocks[4:]])
    return faults.in_request(run, "bob", lambda view: replace(view, cached_tokens=64))


def forgets_the_prefix(run: faults.Recording) -> faults.Recording:
    """The shared blocks lost their content before carol came, and she is given them all the same."""
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
            replace(view, blocks=tuple(block - 14 for block in view.blocks)) if view.name == "R2" else view
            for view in frame.snapshot.requests
        )
        return replace(frame, snapshot=replace(frame.snapshot, requests=tuple(requests)))

    return faults.in_frames(run, shifted, where=range(served, len(run.frames)))


def loses_a_return(pool: faults.PoolView) -> faults.PoolView:
    return replace(pool, returned=max(0, pool.returned - 1))


THE_FIRST: list[tuple[str, str, Fault, str]] = [
    ("pool-fixed", "the pool moves for one step", memory(address=64), "and is now"),
    ("pool-fixed", "the pool grows for one step", memory(nbytes=4096), "bytes"),
    (
        "pool-fixed",
        "a block is added",
        in_scenario(
            "mixed",
            lambda run: faults.in_frames(
                run,
                lambda f: replace(f, snapshot=replace(f.snapshot, pools=(one_block_more(f.snapshot.pool),))),
                where=[5],
            ),
        ),
        "81",
    ),
    ("taken-as-used", "max_model_len is reserved", in_scenario("mixed", reserves_everything), "holds 79 blocks"),
    (
        "taken-as-used",
        "one block too many",
        in_scenario("mixed", lambda run: faults.with_table(run, "long", lambda blocks: (*blocks, 60))),
        "'long' holds 23 blocks for 337 tokens, not 22",
    ),
    (
        "taken-as-used",
        "one block too few",
        in_scenario("mixed", lambda run: faults.with_table(run, "medium", lambda blocks: blocks[:-1])),
        "'medium' holds 3 blocks",
    ),
    ("sharing", "copies instead of sharing", in_scenario("sharing", bob_gets_copies), "found 48 tokens, and 0 blocks"),
    (
        "sharing",
        "owners are not counted",
        in_scenario("sharing", lambda run: faults.with_owners(run, lambda owners: min(owners, 1))),
        "counts 1 owners",
    ),
    (
        "sharing",
        "the prefix is computed again",
        in_scenario("sharing", lambda run: faults.with_acts(run, recomputes)),
        "to compute",
    ),
    (
        "sharing",
        "unequal tokens are shared",
        in_scenario("sharing", shares_too_much),
        "only 61 of their prompts are equal",
    ),
    ("sharing", "a block comes back without its content", in_scenario("sharing", forgets_the_prefix), "was free"),
    (
        "sharing",
        "another answer",
        in_scenario("sharing", lambda run: faults.another_token(run, "carol")),
        "of carol differs",
    ),
    ("holes", "refused though there is room", in_scenario("holes", faults.never_served), "was not served"),
    (
        "holes",
        "blocks of others instead of the hole",
        in_scenario("holes", lambda run: faults.with_table(run, "NEW", avoids_the_hole)),
        "which were not free",
    ),
    (
        "holes",
        "one block twice",
        in_scenario("holes", lambda run: faults.with_table(run, "NEW", lambda blocks: (*blocks[:-1], blocks[0]))),
        "has 26 different",
    ),
    ("holes", "a survivor is moved", in_scenario("holes", moves_a_survivor), "R2"),
    (
        "holes",
        "a block of the hole is lost",
        in_scenario(
            "holes",
            lambda run: faults.in_pools(
                run, lambda pool: replace(pool, reuse_order=tuple(block for block in pool.reuse_order if block != 23))
            ),
        ),
        "neither free nor held",
    ),
    ("holes", "another answer", in_scenario("holes", lambda run: faults.another_token(run, "NEW")), "of NEW differs"),
    ("accounting", "a return is lost", in_scenario("mixed", lambda run: faults.in_pools(run, loses_a_return)), "I9"),
    (
        "accounting",
        "an owner too many",
        in_scenario("holes", lambda run: faults.with_owners(run, lambda owners: 2 * owners)),
        "I2",
    ),
    (
        "accounting",
        "an act is not written down",
        in_scenario("alone", lambda run: faults.with_acts(run, lambda act: None if isinstance(act, Take) else act)),
        "I3|I12",
    ),
    (
        "accounting",
        "an audit from inside",
        in_scenario(
            "mixed", lambda run: faults.in_frames(run, lambda f: replace(f, violations=("I6 is broken",)), where=[4])
        ),
        "I6 is broken",
    ),
]

REFUTES = [*THE_FIRST, *scheduling_faults.REFUTES, *cache_faults.REFUTES, *placement_faults.REFUTES]


@pytest.mark.parametrize(("claim", "fault", "words"), [pytest.param(c, f, w, id=f"{c}: {n}") for c, n, f, w in REFUTES])
def test_a_fault_refutes_the_claim(plays: Plays, claim: str, fault: Fault, words: str) -> None:
    sound = JUDGES[claim].prove(plays.recordings)
    assert sound.verdict is Verdict.PROVED, sound.reason
    proof = JUDGES[claim].prove(fault(dict(plays.recordings)))
    assert proof.verdict is Verdict.REFUTED, proof.reason
    assert any(word in proof.reason for word in words.split("|")), proof.reason


def test_no_fault_makes_a_judge_stumble(plays: Plays) -> None:
    """Every claim is judged on every fault, and none of them is refuted without one."""
    for claim in CLAIMS:
        assert claim.prove(plays.recordings).verdict is Verdict.PROVED
    for _, _, fault, _ in REFUTES:
        recordings = fault(dict(plays.recordings))
        assert {type(claim.prove(recordings).verdict) for claim in CLAIMS} == {Verdict}


def test_every_claim_has_a_fault_that_refutes_it() -> None:
    assert {claim for claim, *_ in REFUTES} == set(JUDGES)
