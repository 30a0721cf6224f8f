"""Waiting requests, in the order in which they will be admitted."""

from __future__ import annotations

import bisect
from collections import deque
from collections.abc import Iterator
from typing import Protocol

from pellucid.engine.sequence import Sequence


class WaitingQueue(Protocol):
    """Only the head is ever admitted."""

    def __len__(self) -> int: ...

    def __iter__(self) -> Iterator[Sequence]: ...

    def add(self, sequence: Sequence) -> None:
        """A new arrival."""

    def put_back(self, sequence: Sequence) -> None:
        """A pre-empted request returns."""

    def head(self) -> Sequence: ...

    def pop(self) -> Sequence: ...

    def remove(self, sequence: Sequence) -> None: ...


class ArrivalQueue:
    """First come, first served; whoever was pre-empted goes to the front."""

    def __init__(self) -> None:
        self._queue: deque[Sequence] = deque()

    def __len__(self) -> int:
        return len(self._queue)

    def __iter__(self) -> Iterator[Sequence]:
        return iter(self._queue)

    def add(self, sequence: Sequence) -> None:
        self._queue.append(sequence)

    def put_back(self, sequence: Sequence) -> None:
        self._queue.appendleft(sequence)

    def head(self) -> Sequence:
        return self._queue[0]

    def pop(self) -> Sequence:
        return self._queue.popleft()

    def remove(self, sequence: Sequence) -> None:
        self._queue.remove(sequence)


class PriorityQueue:
    """Smallest (priority, arrival) first, a pre-empted request in its own place."""

    def __init__(self) -> None:
        self._queue: list[Sequence] = []

    def __len__(self) -> int:
        return len(self._queue)

    def __iter__(self) -> Iterator[Sequence]:
        return iter(self._queue)

    def add(self, sequence: Sequence) -> None:
        bisect.insort(self._queue, sequence, key=lambda other: other.rank)

    def put_back(self, sequence: Sequence) -> None:
        self.add(sequence)

    def head(self) -> Sequence:
        return self._queue[0]

    def pop(self) -> Sequence:
        return self._queue.pop(0)

    def remove(self, sequence: Sequence) -> None:
        self._queue.remove(sequence)


def waiting_queue(policy: str) -> WaitingQueue:
    return PriorityQueue() if policy == "priority" else ArrivalQueue()
