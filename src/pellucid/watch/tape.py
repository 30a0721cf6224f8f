"""A recording to be played: each message a frame, and a way to any of them."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from itertools import groupby
from pathlib import Path

import msgspec
from msgspec import Struct

from pellucid.errors import JournalError
from pellucid.kv.journal import Journal
from pellucid.lang import say
from pellucid.stream.live import Live
from pellucid.stream.messages import End, Picture, Step, Watched
from pellucid.stream.recording import Recording
from pellucid.watch.moment import Moment
from pellucid.watch.pace import LEAST, WINDOW
from pellucid.watch.scene import Scene, scene_of

JOURNAL_STEP_S = 0.1
"""A saved journal knows no times: it is played at ten steps a second."""
LEAST_APART = 64
CHECKPOINTS = 32

Frame = Picture | Step


class Tape:
    """``frames`` in order, of which the first is a picture; ``clocks`` are their seconds from the first.

    ``watched`` is None in a saved journal. ``ended`` says how it ends, None if it just stops; ``notes`` are said
    at its end, too. Going back costs the folding of at most one part in `CHECKPOINTS` of it.
    """

    def __init__(
        self,
        frames: Sequence[Frame],
        clocks: Sequence[float],
        watched: Watched | None = None,
        ended: str | None = None,
        notes: tuple[str, ...] = (),
    ) -> None:
        self.clocks = clocks
        self.watched = watched
        self.last = len(frames) - 1
        self._frames = frames
        self._ended = ended
        self._notes = notes
        self._steps = _steps(frames)
        self._apart = max(LEAST_APART, len(frames) // CHECKPOINTS)
        self._checkpoints: dict[int, Picture] = {}
        self._live = Live(watched or Watched(engine="", model="", pid=0, started=0.0))
        self._position = -1

    def live(self, position: int) -> Live:
        """Everything known after frame ``position``, until the next call."""
        known = max((i for i in self._checkpoints if i <= position), default=-1)
        if not self._position <= position or self._position < known:
            self._live = Live(self._live.watched)
            self._position = known
            if known >= 0:
                self._live.take(self._checkpoints[known])
        while self._position < position:
            self._position += 1
            self._live.take(self._frames[self._position])
            if self._position % self._apart == 0 and self._position not in self._checkpoints:
                self._checkpoints[self._position] = _checkpoint(self._live)
        return self._live

    def scene(self, position: int) -> Scene:
        """What there was to see after frame ``position``."""
        at_end = position == self.last
        scene = scene_of(
            self.live(position),
            rate=self._rate(position),
            ended=self._ended if at_end else None,
            notes=self._notes if at_end else (),
        )
        return scene if self.watched else msgspec.structs.replace(scene, watched=None, time=None, rate=None)

    def at(self, moment: Moment) -> int:
        """The frame of ``moment``: the last one that is not after it."""
        if moment.step is not None:
            return max(0, bisect_right(self._steps, moment.step) - 1)
        if moment.seconds is not None:
            return max(0, bisect_right(self.clocks, moment.seconds) - 1)
        return self.at_share(moment.share or 0.0)

    def at_share(self, share: float) -> int:
        """The frame that so much of the time (0 to 1) is before."""
        return max(0, bisect_right(self.clocks, share * self.clocks[-1]) - 1)

    def _rate(self, position: int) -> float | None:
        """Steps a second over the `WINDOW` before, as `Pace` has it."""
        now = self.clocks[position]
        if (seconds := min(WINDOW, now)) < LEAST:
            return None
        before = max(0, bisect_right(self.clocks, now - WINDOW) - 1)
        return (self._steps[position] - self._steps[before]) / seconds


def read_tape(path: str | Path) -> Tape:
    """The recording or the saved journal at ``path``. Raises `JournalError`."""
    try:
        with Path(path).open("rb") as file:
            kind = msgspec.json.decode(file.readline(), type=_Kind).format
        if kind == "pellucid.journal":
            return _of_journal(Journal.load(path))
        return _of_recording(Recording(path))
    except OSError as error:
        raise JournalError(f"{path} cannot be read: {error.strerror}.") from error
    except msgspec.MsgspecError as error:
        raise JournalError(f"{path} is neither a recording nor a journal ({error}).") from error


class _Kind(Struct):
    format: str


def _of_recording(recording: Recording) -> Tape:
    frames: list[Frame] = []
    ended = None
    for _, message in recording:
        if isinstance(message, End):
            ended = message.reason
        elif isinstance(message, Picture) or (isinstance(message, Step) and frames):
            frames.append(message)
    if not frames:
        raise JournalError(f"{recording.path} holds no picture: the recording was stopped before there was one.")
    notes = (say("the recording breaks off here: its last line is not whole"),) if recording.cut_off else ()
    start = frames[0].time
    clocks = _ascending(frame.time - start for frame in frames)
    return Tape(frames, clocks, recording.header.watched, ended, notes)


def _of_journal(journal: Journal) -> Tape:
    frames: list[Frame] = [Picture(time=0.0, snapshot=journal.base)]
    for _, acts in groupby(journal, key=lambda act: act.step):
        frames.append(Step(seq=len(frames), time=0.0, acts=tuple(acts)))
    return Tape(frames, [JOURNAL_STEP_S * i for i in range(len(frames))])


def _steps(frames: Iterable[Frame]) -> list[int]:
    """The engine's step at each frame."""
    steps: list[int] = []
    for frame in frames:
        if isinstance(frame, Picture):
            steps.append(frame.snapshot.step)
        else:
            steps.append(frame.acts[-1].step if frame.acts else steps[-1])
    return steps


def _ascending(clocks: Iterable[float]) -> list[float]:
    """Clocks may be set back while they are read; time here is not."""
    result: list[float] = []
    for clock in clocks:
        result.append(max(clock, result[-1]) if result else clock)
    return result


def _checkpoint(live: Live) -> Picture:
    return Picture(
        time=live.time,
        snapshot=live.snapshot,
        lookups=dict(live.lookups),
        times=live.times.table(),
        dropped=live.dropped,
        violations=live.violations,
    )
