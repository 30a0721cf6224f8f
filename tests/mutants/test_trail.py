"""The trail of the past, one act at a time: each fault alone, at its very edge.

`tests/kv/test_invariants.py` plants faults in a running engine, where one fault often breaks several invariants. Here
every check has to notice by itself.
"""

from __future__ import annotations

from pellucid.kv import KVManager, acts
from pellucid.kv.acts import AnyAct
from pellucid.kv.trail import Fault, Trail

B = 4
SPACE = b""


def follow(*story: AnyAct) -> list[Fault]:
    trail = Trail(KVManager(9, B).snapshot())
    return [fault for act in story for fault in trail.follow(act)]


def broken(*story: AnyAct) -> list[str]:
    return [fault.invariant for fault in follow(*story)]


def admitted(tokens: int, blocks: tuple[int, ...]) -> list[AnyAct]:
    """Request "a" runs for the first time, in step 1, with nothing found."""
    return [acts.Open(0, "a", tokens, SPACE), acts.Admit(1, "a", 0), acts.Take(1, "a", blocks)]


def test_a_hit_on_every_token() -> None:
    for hit, faults in ((4, []), (8, ["I8"])):
        assert broken(acts.Open(0, "a", 8, SPACE), acts.Lookup(1, "a", acts.LookupKind.FIRST, 8, hit, ())) == faults


def test_an_admission_with_nothing_left_to_compute() -> None:
    writer = [*admitted(8, (1, 2)), acts.Publish(1, "a", (1, 2), (b"1", b"2")), acts.Launch(1, ("a",), (8,))]
    for tokens, faults in ((9, []), (8, ["I8"])):
        reader = [acts.Open(1, "b", tokens, SPACE), acts.Share(2, "b", (1, 2), ()), acts.Admit(2, "b", 8)]
        assert broken(*writer, *reader) == faults


def test_a_planned_row_without_tokens() -> None:
    assert broken(*admitted(5, (1, 2)), acts.Launch(1, ("a",), (1,))) == []
    assert broken(*admitted(5, (1, 2)), acts.Launch(1, ("a",), (0,))) == ["I8"]


def test_the_newest_slot_is_written_again() -> None:
    first = [*admitted(6, (1, 2)), acts.Launch(1, ("a",), (6,))]
    trail = Trail(KVManager(9, B).snapshot())
    assert [fault for act in first for fault in trail.follow(act)] == []
    (fault,) = trail._write("a", 5, 6, step=1)
    assert (fault.invariant, fault.blocks) == ("I4", (2,))
    assert list(trail._write("a", 6, 7, step=1)) == []


def test_a_findable_block_is_taken_for_other_tokens() -> None:
    story = [
        *admitted(4, (1,)),
        acts.Publish(1, "a", (1,), (b"1",)),
        acts.Launch(1, ("a",), (4,)),
        acts.Commit(1, 1, ("a",)),
        acts.Return(1, "a", (1,), (), 0),
        acts.Open(1, "b", 4, SPACE),
        acts.Admit(2, "b", 0),
    ]
    assert broken(*story, acts.Evict(2, "b", (1,)), acts.Take(2, "b", (1,))) == []
    (fault,) = follow(*story, acts.Take(2, "b", (1,)))
    assert (fault.invariant, fault.blocks) == ("I6", (1,))


def test_a_trail_that_begins_in_mid_run_knows_what_was_written() -> None:
    kv = KVManager(9, B)
    table = kv.open("a", list(range(7)))
    kv.begin_step()
    kv.admit(table, kv.match(table), 6)
    kv.launch(["a"], (6,))
    trail = Trail(kv.snapshot())
    (fault,) = trail._write("a", 5, 6, step=1)
    assert (fault.invariant, fault.blocks) == ("I4", (table.ids[1],))
    assert list(trail._write("a", 6, 7, step=1)) == []
