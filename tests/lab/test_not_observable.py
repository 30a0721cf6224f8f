"""A claim whose situation did not arise is not observable, never proved."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from msgspec.structs import replace

from lab import faults
from lab.faults import Recordings
from lab.scheduling_faults import first_gives_way
from pellucid.kv.acts import Return
from pellucid.lab.claims import CLAIMS
from pellucid.lab.pellucid_subject import PellucidLaboratory
from pellucid.lab.proof import Verdict
from pellucid.lab.recorder import Recorder, tokens
from pellucid.lab.recording import Recording
from pellucid.lab.scenario import Scenario
from pellucid.lab.scenarios import SCENARIOS, placement
from pellucid.lab.scenarios.holes import ARRIVES, HOLES
from pellucid.lab.scenarios.placement import MOVED
from pellucid.lab.scenarios.reuse import REUSE
from pellucid.lab.scenarios.salts import SALTS
from pellucid.lab.scenarios.sharing import SHARING
from pellucid.lab.trial import Plays, play
from pellucid.model import LoadedModel

JUDGES = {claim.id: claim for claim in CLAIMS}


def verdict(claim: str, recordings: Recordings, words: str) -> Verdict:
    proof = JUDGES[claim].prove(recordings)
    assert words in proof.reason, proof.reason
    return proof.verdict


def idle(plays: Plays) -> Recordings:
    """Nothing but the first frame of everything."""
    return {name: replace(run, frames=run.frames[:1], acts=(), outputs={}) for name, run in plays.recordings.items()}


@pytest.mark.parametrize("claim", JUDGES)
def test_a_run_in_which_nothing_happened_proves_nothing(plays: Plays, claim: str) -> None:
    assert JUDGES[claim].prove(idle(plays)).verdict is Verdict.NOT_OBSERVABLE


@pytest.mark.parametrize("claim", JUDGES)
def test_a_scenario_that_was_not_played_proves_nothing(plays: Plays, claim: str) -> None:
    proof = JUDGES[claim].prove({}, {scenario.name: "no room" for scenario in SCENARIOS})
    assert proof.verdict is Verdict.NOT_OBSERVABLE
    assert "no room" in proof.reason


def test_a_pool_that_cannot_be_seen(plays: Plays) -> None:
    blind = {
        name: faults.in_frames(run, lambda frame: replace(frame, memory=None)) for name, run in plays.recordings.items()
    }
    assert verdict("pool-fixed", blind, "does not show where") is Verdict.NOT_OBSERVABLE


def test_without_a_cache_nothing_is_shared(tiny: LoadedModel, plays: Plays) -> None:
    unshared = {**plays.recordings, SHARING.name: plays.recordings["unshared"]}
    assert verdict("sharing", unshared, "nothing was shared") is Verdict.NOT_OBSERVABLE


def test_one_owner_at_a_time_is_not_two(tiny: LoadedModel) -> None:
    one_by_one = play(PellucidLaboratory(tiny, max_num_seqs=1))
    assert verdict("sharing", one_by_one.recordings, "no block had two live owners") is Verdict.NOT_OBSERVABLE


def _play(tiny: LoadedModel, script: Callable[[Recorder], None], **options: object) -> Recording:
    recorder = Recorder("holes", PellucidLaboratory(tiny, **options)(enable_prefix_caching=False))
    script(recorder)
    recorder.drain()
    return recorder.recording()


def _side_by_side(recorder: Recorder, middle: int, late: int) -> None:
    """Three of 5 blocks, of which the middle one lasts ``middle`` tokens, and then one of ``late`` blocks."""
    for name, output in (("R0", 20), ("R1", middle), ("R2", 20)):
        recorder.add(name, tokens(260, name, 70), output)
    recorder.until(lambda: recorder.ended("R1"), limit=6)
    recorder.add(ARRIVES, tokens(260, ARRIVES, late * 16 - 6), 4)
    recorder.until(lambda: recorder.ended(ARRIVES), limit=8)


@pytest.mark.parametrize(
    ("middle", "late", "words"),
    [
        (2, 10, "lay side by side: they were enough"),  # 64 blocks behind the three
        (20, 10, "never came back"),  # nobody has ended
    ],
)
def test_holes_that_were_not_needed(tiny: LoadedModel, plays: Plays, middle: int, late: int, words: str) -> None:
    run = _play(tiny, lambda recorder: _side_by_side(recorder, middle, late))
    if middle == 20:  # until the drain
        run = replace(run, frames=tuple(frame for frame in run.frames if not frame.aborted))
    assert verdict("holes", {**plays.recordings, HOLES.name: run}, words) is Verdict.NOT_OBSERVABLE


def test_nobody_arrived(plays: Plays) -> None:
    run = plays.recordings["holes"]
    arrived = next(i for i, frame in enumerate(run.frames) if ARRIVES in frame.added)
    run = replace(run, frames=run.frames[:arrived])
    assert verdict("holes", {**plays.recordings, "holes": run}, "No request arrived") is Verdict.NOT_OBSERVABLE


def test_rounding_is_no_evidence(plays: Plays) -> None:
    changed = faults.rounding(faults.another_token(plays.recordings["sharing"], "bob"))
    assert verdict("sharing", {**plays.recordings, "sharing": changed}, "rounding") is Verdict.NOT_OBSERVABLE


def test_a_contiguous_allocator_that_would_have_served_it(tiny: LoadedModel, plays: Plays) -> None:
    run = _play(tiny, lambda recorder: _side_by_side(recorder, 2, 10))
    assert verdict("contiguous", {HOLES.name: run}, "Here it would not have been") is Verdict.NOT_OBSERVABLE


def test_a_request_that_neither_way_of_keeping_memory_serves(plays: Plays) -> None:
    run = plays.recordings["holes"]
    arrived = next(i for i, frame in enumerate(run.frames) if ARRIVES in frame.added)
    waiting = replace(run, frames=run.frames[: arrived + 1])
    stuck = faults.in_request(waiting, ARRIVES, lambda view: replace(view, slots=0, tables=((),)))
    assert verdict("contiguous", {HOLES.name: stuck}, "it would wait too") is Verdict.NOT_OBSERVABLE


def test_ids_that_were_not_shuffled(plays: Plays) -> None:
    same = {**plays.recordings, "shuffled": plays.recordings["placed"]}
    assert verdict("placement", same, "every request got the blocks") is Verdict.NOT_OBSERVABLE


@pytest.mark.parametrize(
    ("place", "words"),
    [
        (None, "No live block was moved"),
        (-1, "two live owners"),
        (0, "partly filled"),
        (slice(None), "where a cached one was"),
    ],
)
def test_moves_that_do_not_matter_enough(
    tiny: LoadedModel, plays: Plays, monkeypatch: pytest.MonkeyPatch, place: int | slice | None, words: str
) -> None:
    """Of the table of ann only the blocks at ``place`` move, to free ones."""

    def moves(recorder: Recorder, before: list[tuple[int, int]], *, everything: bool) -> list[tuple[int, int]]:
        blocks = at(recorder.snapshot.table("ann"), place)
        return list(zip(blocks, range(70, 79) if everything else range(60, 69), strict=False))

    monkeypatch.setattr(placement, "ROUNDS", 2)
    monkeypatch.setattr(placement, "_moves", moves)
    recorder = Recorder(MOVED.name, PellucidLaboratory(tiny)(**MOVED.settings))
    MOVED.play(recorder)
    changed = {**plays.recordings, MOVED.name: recorder.recording()}
    assert verdict("placement", changed, words) is Verdict.NOT_OBSERVABLE


def test_moves_to_places_where_nobody_had_just_been(
    tiny: LoadedModel, plays: Plays, monkeypatch: pytest.MonkeyPatch
) -> None:
    honest = placement._moves
    monkeypatch.setattr(placement, "_moves", lambda recorder, before, **how: honest(recorder, [], **how))
    recorder = Recorder(MOVED.name, PellucidLaboratory(tiny)(**MOVED.settings))
    MOVED.play(recorder)
    changed = {**plays.recordings, MOVED.name: recorder.recording()}
    assert verdict("placement", changed, "where another live one had just been") is Verdict.NOT_OBSERVABLE


def at(table: tuple[int, ...], place: int | slice | None) -> tuple[int, ...]:
    if place is None:
        return ()
    return table[place] if isinstance(place, slice) else (table[place],)


def test_moves_and_rounding(plays: Plays) -> None:
    changed = faults.rounding(faults.another_token(plays.recordings["moved"], "ann"))
    assert verdict("placement", {**plays.recordings, "moved": changed}, "rounding") is Verdict.NOT_OBSERVABLE


def test_requests_as_long_as_their_reservation(tiny: LoadedModel) -> None:
    short = play(PellucidLaboratory(tiny, max_model_len=16))
    assert verdict("taken-as-used", short.recordings, "1 block(s)") is Verdict.NOT_OBSERVABLE
    assert "no room for three requests" in short.missing["holes"]
    assert "whole block in common" in short.missing["sharing"]


def instead(plays: Plays, **scenarios: str) -> Recordings:
    """One scenario's recording in place of another's."""
    return {**plays.recordings, **{name: plays.recordings[other] for name, other in scenarios.items()}}


def blind(plays: Plays) -> Recordings:
    """Of an engine that keeps no journal."""
    return {name: replace(run, acts=None) for name, run in plays.recordings.items()}


JOURNALLED = ("reuse-order", "preemption", "chunking", "batching", "planning-ahead", "miss-ledger", "journal")


@pytest.mark.parametrize("claim", JOURNALLED)
def test_what_only_a_journal_tells_is_not_claimed_without_one(plays: Plays, claim: str) -> None:
    assert verdict(claim, blind(plays), "keeps no journal") is Verdict.NOT_OBSERVABLE


def test_a_pool_with_room_pre_empts_nobody(plays: Plays) -> None:
    assert verdict("preemption", instead(plays, pressure="roomy"), "nobody was pre-empted") is Verdict.NOT_OBSERVABLE


def test_a_reference_under_pressure_is_none(plays: Plays) -> None:
    assert verdict("preemption", instead(plays, roomy="pressure"), "with room as well") is Verdict.NOT_OBSERVABLE


def test_prompts_that_come_at_once_are_no_chunks(plays: Plays) -> None:
    whole = {**plays.recordings, "chunked": plays.recordings["in step"]}
    assert verdict("chunking", whole, "No prompt was divided otherwise") is Verdict.NOT_OBSERVABLE


def test_one_at_a_time_is_no_batch(tiny: LoadedModel, plays: Plays) -> None:
    one_by_one = play(PellucidLaboratory(tiny, max_num_seqs=1))
    assert verdict("batching", one_by_one.recordings, "there was no batch") is Verdict.NOT_OBSERVABLE
    crowded = {**plays.recordings, "one by one": plays.recordings["in step"]}
    assert verdict("batching", crowded, "No request was alone") is Verdict.NOT_OBSERVABLE


def test_an_engine_that_never_plans_ahead(plays: Plays) -> None:
    assert verdict("planning-ahead", instead(plays, ahead="in step"), "No plan was launched while") is (
        Verdict.NOT_OBSERVABLE
    )
    always = {**plays.recordings, "in step": plays.recordings["ahead"]}
    assert verdict("planning-ahead", always, "although asynchronous scheduling was off") is Verdict.NOT_OBSERVABLE


def test_whoever_leaves_between_two_steps_leaves_nothing_under_way(plays: Plays) -> None:
    polite = {**plays.recordings, "leaving": plays.recordings["leaving in step"]}
    assert verdict("planning-ahead", polite, "Nobody left blocks behind") is Verdict.NOT_OBSERVABLE


def test_whoever_brings_what_is_like_a_prefix_must_be_served(plays: Plays) -> None:
    run = plays.recordings["sharing"]
    never = faults.in_request(run, "dave", lambda view: replace(view, slots=0, tables=((),)))
    assert verdict("sharing", {**plays.recordings, "sharing": never}, "dave was never served") is Verdict.NOT_OBSERVABLE


@pytest.mark.parametrize(("policy", "words"), [(None, "does not say who gives way"), ("lottery", "by lottery")])
def test_whose_turn_it_is_by_a_rule_that_the_engine_does_not_claim(
    plays: Plays, policy: str | None, words: str
) -> None:
    """The first to come gives way, which is another policy and no mistake."""
    run = first_gives_way(plays.recordings["pressure"])
    run = replace(run, about=replace(run.about, scheduling_policy=policy))
    proof = JUDGES["preemption"].prove({**plays.recordings, "pressure": run})
    assert "had to give way" not in proof.reason, proof.reason
    sound = replace(plays.recordings["pressure"], about=run.about)
    proof = JUDGES["preemption"].prove({**plays.recordings, "pressure": sound})
    assert proof.verdict is Verdict.PROVED, proof.reason
    assert words in dict(proof.facts)["in turn"]


def test_without_a_cache_salts_keep_nothing_apart(tiny: LoadedModel, plays: Plays) -> None:
    run = _cacheless(tiny, SALTS)
    assert verdict("isolation", {**plays.recordings, "salts": run}, "no cache to be kept apart") is (
        Verdict.NOT_OBSERVABLE
    )


def test_both_halves_of_isolation_are_needed(plays: Plays) -> None:
    """As if only those of the same salt had come."""
    run = plays.recordings["salts"]
    reds = {name: asked for name, asked in run.requests.items() if asked.salt == "red"}
    only = replace(run, requests=reds)

    def without_others(frame: faults.Frame) -> faults.Frame:
        views = tuple(view for view in frame.snapshot.requests if view.name in reds)
        return replace(frame, snapshot=replace(frame.snapshot, requests=views))

    only = faults.in_frames(only, without_others)
    assert verdict("isolation", {**plays.recordings, "salts": only}, "under another salt") is Verdict.NOT_OBSERVABLE


def test_without_a_cache_nothing_is_asked_of_it(tiny: LoadedModel, plays: Plays) -> None:
    runs = {**instead(plays, sharing="unshared"), "reuse": _cacheless(tiny, REUSE)}
    runs = {name: run for name, run in runs.items() if name not in ("salts", "pressure")}
    assert verdict("miss-ledger", runs, "Nobody asked the prefix cache") is Verdict.NOT_OBSERVABLE


def test_a_pool_of_which_nothing_is_used_twice(plays: Plays) -> None:
    run = plays.recordings["reuse"]
    ended = next(i for i, act in enumerate(run.acts or ()) if isinstance(act, Return))
    first = replace(run, acts=(run.acts or ())[:ended])
    runs = {name: run for name, run in plays.recordings.items() if name != "pressure"}
    assert verdict("reuse-order", {**runs, "reuse": first}, "No block was used twice") is Verdict.NOT_OBSERVABLE


def test_a_pool_with_a_past_has_no_known_order(plays: Plays) -> None:
    assert verdict("reuse-order", instead(plays, reuse="pressure"), "had been used before") is Verdict.NOT_OBSERVABLE


@pytest.mark.parametrize(
    ("claim", "scenario", "name"),
    [
        ("preemption", "pressure", "P2"),
        ("chunking", "chunked", "five"),
        ("batching", "in step", "one"),
        ("planning-ahead", "ahead", "three"),
        ("isolation", "salts", "tan"),
    ],
)
def test_rounding_is_no_evidence_for_or_against_any(plays: Plays, claim: str, scenario: str, name: str) -> None:
    changed = faults.rounding(faults.another_token(plays.recordings[scenario], name))
    assert verdict(claim, {**plays.recordings, scenario: changed}, "rounding") is Verdict.NOT_OBSERVABLE


def _cacheless(tiny: LoadedModel, scenario: Scenario) -> Recording:
    recorder = Recorder(scenario.name, PellucidLaboratory(tiny)(enable_prefix_caching=False))
    scenario.play(recorder)
    return recorder.recording()
