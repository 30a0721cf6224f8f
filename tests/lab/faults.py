"""What a fault is, and how recordings are changed so that they tell of an engine that has it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from msgspec.structs import replace

from pellucid.kv.acts import AnyAct
from pellucid.kv.snapshot import PoolView, RequestView, Snapshot
from pellucid.kv.table import RequestStatus
from pellucid.lab.recording import Frame, Recording

Recordings = dict[str, Recording]


class Fault(NamedTuple):
    """Something that an engine could do wrong, put into the recordings of one that does not.

    ``sentence`` tells a reader what then happens. ``change`` is made to the recording of ``scenario``, or to every
    one if that is None. ``refutes`` are the claims that it is aimed at, each with words (parted by |) of which some
    must stand in the reason; others may be refuted too.
    """

    name: str
    sentence: str
    scenario: str | None
    change: Callable[[Recording], Recording]
    refutes: Mapping[str, str]

    def put_in(self, recordings: Recordings) -> Recordings:
        """Copies of ``recordings``, which stay as they are."""
        changed = recordings if self.scenario is None else [self.scenario]
        return {**recordings, **{name: self.change(recordings[name]) for name in changed}}


def in_frames(recording: Recording, change: Callable[[Frame], Frame], where: Iterable[int] | None = None) -> Recording:
    """``change`` the frames of the indices ``where``, all of them by default."""
    wanted = set(range(len(recording.frames)) if where is None else where)
    frames = tuple(change(frame) if index in wanted else frame for index, frame in enumerate(recording.frames))
    return replace(recording, frames=frames)


def in_snapshots(recording: Recording, change: Callable[[Snapshot], Snapshot]) -> Recording:
    return in_frames(recording, lambda frame: replace(frame, snapshot=change(frame.snapshot)))


def in_pools(recording: Recording, change: Callable[[PoolView], PoolView]) -> Recording:
    return in_snapshots(recording, lambda shot: replace(shot, pools=tuple(map(change, shot.pools))))


def in_request(recording: Recording, name: str, change: Callable[[RequestView], RequestView]) -> Recording:
    """Change one request wherever it holds blocks."""

    def changed(shot: Snapshot) -> Snapshot:
        requests = (change(r) if r.name == name and r.blocks else r for r in shot.requests)
        return replace(shot, requests=tuple(requests))

    return in_snapshots(recording, changed)


def with_table(recording: Recording, name: str, table: Callable[[tuple[int, ...]], Iterable[int]]) -> Recording:
    """Another table for one request, and nothing else."""
    return in_request(recording, name, lambda request: replace(request, tables=(tuple(table(request.blocks)),)))


def with_owners(recording: Recording, change: Callable[[int], int]) -> Recording:
    return in_pools(recording, lambda pool: replace(pool, owners=tuple(map(change, pool.owners))))


def with_acts(recording: Recording, change: Callable[[AnyAct], AnyAct | None]) -> Recording:
    """Every act changed; None leaves it out."""
    assert recording.acts is not None
    return replace(recording, acts=tuple(act for act in map(change, recording.acts) if act is not None))


def with_the_act(
    recording: Recording, which: Callable[[AnyAct], bool], change: Callable[[Any], AnyAct | None], number: int = 0
) -> Recording:
    """Act ``number`` of those that are ``which`` changed; None leaves it out."""
    assert recording.acts is not None
    at = [i for i, act in enumerate(recording.acts) if which(act)][number]
    changed = change(recording.acts[at])
    acts = (*recording.acts[:at], *(() if changed is None else (changed,)), *recording.acts[at + 1 :])
    return replace(recording, acts=acts)


def with_output(recording: Recording, name: str, **change: Any) -> Recording:
    return replace(recording, outputs={**recording.outputs, name: replace(recording.outputs[name], **change)})


def another_token(recording: Recording, name: str) -> Recording:
    """The same answer but for its last token."""
    *most, last = recording.outputs[name].tokens
    return with_output(recording, name, tokens=(*most, last + 1))


def rounding(recording: Recording) -> Recording:
    """As if the engine ran in a precision in which outputs may differ."""
    return replace(recording, about=replace(recording.about, dtype="bfloat16", exact=False))


def never_served(run: Recording) -> Recording:
    """NEW waits for a contiguous run that never comes, while 35 blocks stay free."""
    admitted = run.admitted("NEW")
    assert admitted is not None
    view = run.frames[admitted].live("NEW")
    assert view is not None
    before = run.frames[admitted - 1].snapshot
    waiting = replace(view, status=RequestStatus.WAITING, tables=((),), slots=0)
    stuck = replace(before, requests=(*before.requests, waiting))
    return in_frames(run, lambda f: replace(f, snapshot=stuck), where=range(admitted, len(run.frames)))
