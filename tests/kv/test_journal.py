"""The journal: bounded or not, saved and loaded, damaged, veiled, compared."""

from __future__ import annotations

import base64
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec.structs import replace

from model_free import Bench, begin, run
from pellucid.errors import JournalError
from pellucid.kv import REUSE_POLICIES, Journal, KVManager, acts, first_difference
from pellucid.kv.fold import Fold


@pytest.fixture(autouse=True)
def _compact_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bounded journals of a few acts fold at the beginning of every step."""
    monkeypatch.setattr("pellucid.kv.journal.COMPACT_ACTS", 1)


def busy(policy: str = "free-first", capacity: int | None = None, *, asynchronous: bool = False) -> Bench:
    """A run with hits, evictions, pre-emptions, moves, an abort and fences; something is still live at its end."""
    bench = Bench(
        num_blocks=10,
        asynchronous=asynchronous,
        reuse_policy=policy,
        max_num_batched_tokens=8,
        journal_capacity=capacity,
    )
    for number in range(3):
        bench.add(f"r{number}", [*range(8), 20 + number], 12)
    for _ in range(6):
        bench.step()
        reclaimable = bench.snapshot.pool.reuse_order
        if reclaimable:
            bench.move(bench.table("r0")[-1], reclaimable[-1])
    bench.abort("r1")
    bench.add("salted", range(9), 12, salt="s")
    for _ in range(12):
        bench.step()
    bench.add("tail", range(9), 12)
    bench.step()
    return bench


def test_the_busy_run_is_worth_its_name() -> None:
    kinds = {type(act).__name__ for asynchronous in (False, True) for act in busy(asynchronous=asynchronous).kv.journal}
    observed_only = {"Drop", "Forget"}  # our engine has no sliding window, and no reset of its cache
    assert kinds == {kind.__name__ for kind in acts.AnyAct.__args__} - observed_only


# -- folding -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("policy", REUSE_POLICIES)
@pytest.mark.parametrize("capacity", [1, 2, 7, 30, None])
@pytest.mark.parametrize("asynchronous", [False, True])
def test_a_bounded_journal_folds_from_its_base_to_the_same(
    policy: str, capacity: int | None, asynchronous: bool
) -> None:
    bench, unbounded = busy(policy, capacity, asynchronous=asynchronous), busy(policy, asynchronous=asynchronous)
    assert bench.kv.journal.fold() == bench.snapshot == unbounded.snapshot
    assert len(bench.kv.journal) == len(unbounded.kv.journal)
    held = list(bench.kv.journal)
    assert held == list(unbounded.kv.journal)[-len(held) :]
    assert capacity is None or len(held) < len(unbounded.kv.journal)


def test_a_bounded_journal_keeps_at_least_its_capacity() -> None:
    kv = KVManager(9, 4, journal_capacity=10)
    for number in range(20):
        run(kv, f"r{number}", range(5))
        assert min(10, len(kv.journal)) <= len(list(kv.journal)) <= 10 + 10  # and the acts of one step


def test_every_prefix_of_a_journal_folds() -> None:
    """Following it act by act or from the start makes no difference."""
    journal = busy(asynchronous=True).kv.journal
    follower = Fold(journal.base)
    for number, act in enumerate(journal, start=1):
        follower.apply(act)
        assert follower.snapshot() == journal.fold(number)


def test_a_follower_may_start_from_any_snapshot() -> None:
    journal = busy(asynchronous=True).kv.journal
    for start in range(0, len(journal), 5):
        follower = Fold(journal.fold(start))
        for act in journal.since(start):
            follower.apply(act)
        assert follower.snapshot() == journal.fold()


def test_what_was_folded_away_cannot_be_asked_for() -> None:
    journal = busy(capacity=10).kv.journal
    assert list(journal.since(journal.folded)) == list(journal)
    assert list(journal.since(len(journal))) == []
    with pytest.raises(JournalError, match=rf"acts 1 to {journal.folded} were folded away; this journal keeps 10"):
        journal.since(0)
    with pytest.raises(JournalError, match="act 0 is not held"):
        journal.fold(0)
    with pytest.raises(JournalError, match=f"act {len(journal) + 1} is not held"):
        journal.fold(len(journal) + 1)


def test_a_journal_of_no_acts_is_refused() -> None:
    with pytest.raises(JournalError, match="capacity must be at least 1 act, not 0; None is unbounded"):
        KVManager(9, 4, journal_capacity=0)


def test_an_act_about_nobody_is_named() -> None:
    kv = KVManager(9, 4)
    kv.journal.append(acts.Admit(1, "ghost", 0))
    with pytest.raises(JournalError, match=r"act 1.* names 'ghost', which no earlier act opened"):
        kv.journal.fold()


# -- files ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("capacity", [None, 20])
def test_shown_identities_round_trip(tmp_path: Path, capacity: int | None) -> None:
    bench = busy(capacity=capacity, asynchronous=True)
    bench.kv.journal.save(tmp_path / "j", show_identities=True)
    loaded = Journal.load(tmp_path / "j")
    assert loaded.base == bench.kv.journal.base
    assert list(loaded) == list(bench.kv.journal)
    assert loaded.fold() == bench.snapshot
    assert first_difference(loaded, bench.kv.journal) is None


@pytest.mark.parametrize("capacity", [None, 20])
def test_veiled_identities_stay_equal_where_they_were(tmp_path: Path, capacity: int | None) -> None:
    bench = busy(capacity=capacity, asynchronous=True)
    bench.kv.journal.save(tmp_path / "j")
    loaded = Journal.load(tmp_path / "j").fold()
    veil = dict(zip(bench.snapshot.pool.identities, loaded.pool.identities, strict=True))
    assert veil.pop(None) is None
    assert len(set(veil.values())) == len(veil) >= 2
    identities = tuple(value and veil[value] for value in bench.snapshot.pool.identities)
    assert loaded == replace(bench.snapshot, pools=(replace(bench.snapshot.pool, identities=identities),))


def test_two_files_are_veiled_differently(tmp_path: Path) -> None:
    journal = busy().kv.journal
    for name in ("one", "two"):
        journal.save(tmp_path / name)
    one, two = (Journal.load(tmp_path / name).fold().pool.identities for name in ("one", "two"))
    assert not {*one} & {*two} - {None}


@pytest.mark.parametrize("capacity", [None, 2])
def test_a_file_tells_neither_tokens_nor_salts(tmp_path: Path, capacity: int | None) -> None:
    """Canaries: token ids, a salt, an adapter, and every form in which an identity could be written."""
    salt, adapter = "canary-salt-5150", ("canary-adapter", "canary-version")
    kv = KVManager(9, 4, journal_capacity=capacity)
    prompt = [77001, 77002, 77003, 77004, 77005]
    tables = [begin(kv, "a", prompt, salt=salt), begin(kv, "b", prompt, adapter=adapter), begin(kv, "c", prompt)]
    run(kv, "d", prompt)
    kv.journal.save(tmp_path / "j")
    text = (tmp_path / "j").read_text()
    canaries = ["7700", "canary", salt.encode().hex()]
    secrets = [table.chain(1)[0] for table in tables] + [table.space for table in tables if table.space]
    for secret in secrets:
        canaries += [secret.hex(), *_base64(secret)]
    assert [canary for canary in canaries if canary in text] == []
    kv.journal.save(tmp_path / "shown", show_identities=True)
    assert any(canary in (tmp_path / "shown").read_text() for canary in _base64(secrets[0]))  # the canary can sing


def _base64(secret: bytes) -> list[str]:
    return [base64.b64encode(secret).decode()[:20], base64.urlsafe_b64encode(secret).decode()[:20]]


def lines_of(path: Path) -> list[bytes]:
    return path.read_bytes().splitlines(keepends=True)


def garble(line: bytes) -> bytes:
    return line.replace(b'"act"', b'"cat"')


@pytest.mark.parametrize(
    "damage",
    [
        garble,
        lambda line: line[: len(line) // 2] + b"\n",
        lambda line: b"\n",
        lambda line: b"\xff" + line,
        lambda line: line.replace(b'"step":', b'"step":"one",'),
        lambda line: b'{"act":"unheard of","step":1}\n',
    ],
)
def test_the_damaged_line_is_named(tmp_path: Path, damage: Callable[[bytes], bytes]) -> None:
    path = tmp_path / "j"
    busy().kv.journal.save(path)
    lines = lines_of(path)
    for number in (2, 9, len(lines)):
        path.write_bytes(b"".join([*lines[: number - 1], damage(lines[number - 1]), *lines[number:]]))
        with pytest.raises(JournalError, match=rf"^{re.escape(str(path))}, line {number} is no act .*damaged"):
            Journal.load(path)


def test_a_file_cut_in_the_middle_of_a_line(tmp_path: Path) -> None:
    path = tmp_path / "j"
    busy().kv.journal.save(path)
    count = len(lines_of(path))
    path.write_bytes(path.read_bytes()[:-9])
    with pytest.raises(JournalError, match=f"line {count} is no act"):
        Journal.load(path)


@pytest.mark.parametrize("dropped", ["first act", "some act", "last act"])
def test_a_file_with_a_missing_line_is_damaged(tmp_path: Path, dropped: str) -> None:
    path = tmp_path / "j"
    busy().kv.journal.save(path)
    lines = lines_of(path)
    del lines[{"first act": 1, "some act": len(lines) // 2, "last act": len(lines) - 1}[dropped]]
    path.write_bytes(b"".join(lines))
    with pytest.raises(JournalError, match=re.escape(str(path))):
        Journal.load(path)


@pytest.mark.parametrize("head", [b"", b"\n", b"{}\n", b"not a journal\n", b'{"format":"pellucid.journal"}\n'])
def test_a_file_that_is_no_journal(tmp_path: Path, head: bytes) -> None:
    path = tmp_path / "j"
    path.write_bytes(head)
    with pytest.raises(JournalError, match=rf"{re.escape(str(path))} does not begin like a journal"):
        Journal.load(path)


@pytest.mark.parametrize(("old", "new"), [(b'"version":2', b'"version":3'), (b"pellucid.journal", b"other.journal")])
def test_another_version_or_format_is_refused(tmp_path: Path, old: bytes, new: bytes) -> None:
    path = tmp_path / "j"
    busy().kv.journal.save(path)
    path.write_bytes(path.read_bytes().replace(old, new, 1))
    with pytest.raises(JournalError, match="version"):
        Journal.load(path)


@pytest.mark.parametrize(
    "impossible",
    [
        acts.Commit(1, 77, ()),
        acts.Take(1, "a", (99,)),
        acts.Publish(1, "a", (1, 2), (b"one identity",)),
        acts.Launch(1, ("a",), (1, 2)),
    ],
)
def test_an_act_that_cannot_be_is_a_damaged_journal(impossible: acts.AnyAct) -> None:
    """A file can hold well-formed acts that no engine wrote; folding them tells which."""
    kv = KVManager(9, 4)
    kv.open("a", [1])
    kv.journal.append(impossible)
    with pytest.raises(JournalError, match="act 2"):
        kv.journal.fold()


# -- comparing -----------------------------------------------------------------------------------------


def test_the_same_story_has_no_difference() -> None:
    assert first_difference(busy().kv.journal, busy().kv.journal) is None


def test_other_pools_differ_at_once() -> None:
    difference = first_difference(KVManager(9, 4).journal, KVManager(8, 4).journal)
    assert difference == "the pools differ: (('kv', 4, 'free-first', 9),) and (('kv', 4, 'free-first', 8),)."


def test_the_first_differing_act_is_numbered() -> None:
    mine, yours = KVManager(9, 4), KVManager(9, 4)
    for kv in (mine, yours):
        run(kv, "a", range(5))
    acts_before = len(mine.journal)
    mine.open("b", [1])
    yours.open("c", [1])
    difference = first_difference(mine.journal, yours.journal)
    assert difference is not None
    assert difference.startswith(f"act {acts_before + 1} differs: Open(")


def test_another_prompt_differs_by_its_identities() -> None:
    mine, yours = KVManager(9, 4), KVManager(9, 4)
    run(mine, "a", [1, 2, 3, 4])
    run(yours, "a", [1, 2, 3, 5])
    assert "Publish" in (first_difference(mine.journal, yours.journal) or "")


def test_a_shorter_journal_differs_by_its_length() -> None:
    mine, yours = KVManager(9, 4), KVManager(9, 4)
    run(mine, "a", [1])
    short = len(mine.journal)
    run(yours, "a", [1])
    run(yours, "b", [1])
    assert first_difference(mine.journal, yours.journal) == (
        f"one journal ends after act {short}, the other after {len(yours.journal)}."
    )


def test_a_bounded_and_an_unbounded_journal_of_one_story() -> None:
    """Their bases differ; the story does not."""
    bounded, unbounded = busy(capacity=10).kv.journal, busy().kv.journal
    assert bounded.folded > 0
    assert first_difference(bounded, unbounded) is None
    assert first_difference(unbounded, bounded) is None


def test_a_difference_folded_away_is_still_one() -> None:
    """Two bounded journals may hold the same last acts and yet come from different pasts."""
    mine, yours = KVManager(9, 4, journal_capacity=4), KVManager(9, 4, journal_capacity=4)
    run(mine, "a", [1, 2, 3, 4])
    run(yours, "a", [1, 2, 3, 5])
    for kv in (mine, yours):
        for number in range(6):
            run(kv, f"r{number}", [9])
    assert list(mine.journal) == list(yours.journal)
    assert first_difference(mine.journal, yours.journal) is not None


def test_files_without_identities_are_compared_by_where_the_same_one_appears_again(tmp_path: Path) -> None:
    journal = busy(asynchronous=True).kv.journal
    for name in ("one", "two"):
        journal.save(tmp_path / name)
    one, two = Journal.load(tmp_path / "one"), Journal.load(tmp_path / "two")
    assert first_difference(one, two) is None
    assert first_difference(one, journal) is None
    other = KVManager(9, 4)
    run(other, "a", [1, 2, 3, 4])
    assert first_difference(one, other.journal) is not None


def test_no_error_text_tells_a_salt_or_an_identity() -> None:
    salt = "canary-salt-5150"
    mine, yours = KVManager(9, 4), KVManager(9, 4)
    begin(mine, "a", [1, 2, 3, 4, 5], salt=salt)
    begin(yours, "a", [1, 2, 3, 4, 5], salt="another")
    assert "differs" in (first_difference(mine.journal, yours.journal) or "")
    assert "canary" not in repr(list(mine.journal))
    assert "space" not in (first_difference(mine.journal, yours.journal) or "")
    mine.journal.append(acts.Publish(1, "ghost", (1, 2), (b"canary",)))
    with pytest.raises(JournalError) as caught:
        mine.journal.fold()
    assert "canary" not in str(caught.value)
