"""A KV memory without paging: each request gets one contiguous stretch, reserved for as long as it lives.

The allocator is the textbook one (first fit with an ordered list of free runs, neighbours joined when one comes
back; Knuth, The Art of Computer Programming, vol. 1, 2.5) and no straw man: it knows what `Reserve` tells it of
every request, divides memory by the token, wastes nothing on boundaries, and serves in order of arrival.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from pellucid.lab.recording import Frame, Recording


class Stretch(NamedTuple):
    """Token slots ``start .. end - 1``; ``name`` holds them, None if they are free."""

    start: int
    end: int
    name: str | None

    @property
    def length(self) -> int:
        return self.end - self.start


class FirstFit:
    """``slots`` token slots in a row."""

    def __init__(self, slots: int) -> None:
        self._free = [(0, slots)]
        self._held: dict[str, tuple[int, int]] = {}

    @property
    def free(self) -> int:
        """Free slots in all."""
        return sum(end - start for start, end in self._free)

    @property
    def longest(self) -> int:
        """The longest run of free slots."""
        return max((end - start for start, end in self._free), default=0)

    def __contains__(self, name: str) -> bool:
        return name in self._held

    def place(self, name: str, length: int) -> bool:
        """Give ``name`` the first free run of ``length`` slots; False if there is none."""
        for i, (start, end) in enumerate(self._free):
            if end - start >= length:
                self._free[i : i + 1] = [(start + length, end)] if start + length < end else []
                self._held[name] = (start, start + length)
                return True
        return False

    def release(self, name: str) -> None:
        """The stretch of ``name`` is free again, one run with free neighbours."""
        joined: list[tuple[int, int]] = []
        for start, end in sorted([*self._free, self._held.pop(name)]):
            if joined and joined[-1][1] == start:
                joined[-1] = (joined[-1][0], end)
            else:
                joined.append((start, end))
        self._free = joined

    def map(self) -> tuple[Stretch, ...]:
        """The whole memory from its beginning."""
        free = (Stretch(start, end, None) for start, end in self._free)
        return tuple(sorted([*free, *(Stretch(start, end, name) for name, (start, end) in self._held.items())]))


class Moment(NamedTuple):
    """The contiguous memory when a frame's requests had been placed, before those that end in it leave."""

    frame: Frame
    memory: tuple[Stretch, ...]
    waiting: tuple[str, ...]
    free: int
    longest: int

    def holds(self, name: str) -> bool:
        return any(stretch.name == name for stretch in self.memory)


def replay(run: Recording, lengths: dict[str, int]) -> Iterator[Moment]:
    """The requests of ``run`` arrive and leave in the frames in which they did, each with ``lengths[name]`` slots.

    The memory has as many slots as the recorded pool. Whoever does not fit waits, and everybody behind with
    it; who still waits in the frame of its recorded end leaves unserved.
    """
    memory = FirstFit(run.usable * run.block_size)
    waiting: list[str] = []
    present: set[str] = set()
    for frame in run.frames:
        waiting += frame.added
        present |= set(frame.added)
        while waiting and memory.place(waiting[0], lengths[waiting[0]]):
            waiting.pop(0)
        yield Moment(frame, memory.map(), tuple(waiting), memory.free, memory.longest)
        for name in sorted(name for name in present if frame.live(name) is None):
            present.remove(name)
            if name in memory:
                memory.release(name)
            else:
                waiting.remove(name)


def lengths_they_have(run: Recording) -> dict[str, int]:
    """Slots that each request really comes to: the least it could reserve, and nobody can know it beforehand."""
    found = {}
    for name, request in run.requests.items():
        seen = max((view.slots for frame in run.frames if (view := frame.live(name))), default=0)
        output = run.outputs.get(name)
        delivered = len(request.prompt) + len(output.tokens) - 1 if output else 0  # the last one is never computed
        found[name] = max(len(request.prompt), seen, delivered)
    return found


def lengths_they_may_have(run: Recording) -> dict[str, int]:
    """``max_model_len`` for each: what an allocator reserves that knows nothing."""
    return dict.fromkeys(run.requests, run.about.max_model_len)
