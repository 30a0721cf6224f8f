"""What the host tells the device about a step: one buffer of small integers, which the step itself comes to read."""

from __future__ import annotations

from typing import Generic, NamedTuple, TypeVar

import numpy as np
import torch

from pellucid.runtime.buckets import Bucket
from pellucid.runtime.device_tables import Appended
from pellucid.runtime.flight import MAX_IN_FLIGHT
from pellucid.runtime.lines import Numbers, Ranges

T = TypeVar("T", Numbers, torch.Tensor)

PADDING = -1
"""The line of a row that samples nothing."""
SERIALS = 2**32


class Columns(NamedTuple, Generic[T]):
    """The buffer in its parts, all int32: views of numpy's on the host and of torch's on the device."""

    serial: T
    """[1]: which step this is: more than the steps before, modulo `SERIALS`."""
    turn: T
    """[1]: which of the host's buffers this is, and where the step's tokens go in `Results`."""
    sampling: T
    """[R]: the line of each row in the tables where it samples, `PADDING` where it does not."""
    query_start: T
    """[R + 1]: where each row's tokens begin among the step's."""
    ends: T
    """[R]: tokens of each row that have KV after the step, the position of the token it may sample; 0: padding."""
    lines: T
    """[R]: the line of each row, in any case."""
    appended: T
    """[1]: how many blocks are appended to tables."""
    places: T
    """[appended]: where in the flat block table they go."""
    blocks: T
    """[appended]: which they are."""


class StepBuffer:
    """A buffer on the device, at a fixed address, and as many on the host as steps may be in flight.

    The host describes a step in one of its own, and the first kernel of the step takes it from there: of those whose
    serial is above that of the last step done, ``done`` [1] int32 on the device, the lowest. If none is, as while steps
    are captured, the step is nothing but padding. The last kernel of a step writes its serial to ``done``. So what was
    described and not `launched` is forgotten once the next step is described, in its place.

    A buffer of the host is written to again two steps later. The step that it served last is collected by then.
    """

    def __init__(self, rows: int, room: int, device: torch.device | str) -> None:
        self.room = room
        """How many appended blocks fit."""
        sizes = (1, 1, rows, rows + 1, rows, rows, 1, room, room)
        pinned = torch.device(device).type == "cuda"
        self.hosts = torch.zeros(MAX_IN_FLIGHT, sum(sizes), dtype=torch.int32, pin_memory=pinned)
        """[turns, numbers] int32, pinned: the device reads what is there when a step runs."""
        self.packed = torch.zeros(sum(sizes), dtype=torch.int32, device=device)
        """[numbers] int32: the same of the step that runs."""
        self.device = Columns[torch.Tensor](*self.packed.split(sizes))
        self.device.sampling.fill_(PADDING)
        self.done = torch.zeros(1, dtype=torch.int32, device=device)
        cuts = np.cumsum(sizes)[:-1]
        self._columns = [Columns[Numbers](*np.split(host, cuts)) for host in self.hosts.numpy()]
        self._ordinal = np.arange(rows + 1, dtype=np.int32)
        self._launched = 0

    @property
    def turn(self) -> int:
        """Of the next step."""
        return self._launched % MAX_IN_FLIGHT

    def describe(self, ranges: Ranges, bucket: Bucket, appended: Appended) -> None:
        """Describe the next step, padded to ``bucket``, that appends at most ``room`` blocks."""
        parts = self._columns[self.turn]
        rows, count = len(ranges.lines), len(appended.places)
        if bucket.decode:
            parts.query_start[: bucket.rows + 1] = self._ordinal[: bucket.rows + 1]
        else:
            np.cumsum(ranges.counts, out=parts.query_start[1 : rows + 1])
            parts.query_start[rows + 1 : bucket.rows + 1] = parts.query_start[rows]
        parts.ends[:rows] = ranges.ends
        parts.ends[rows : bucket.rows] = 0
        parts.lines[:rows] = ranges.lines
        parts.sampling[:rows] = np.where(ranges.samples, ranges.lines, PADDING)
        parts.sampling[rows : bucket.rows] = PADDING
        parts.appended[0] = count
        parts.places[:count] = appended.places
        parts.blocks[:count] = appended.blocks
        parts.turn[0] = self.turn
        parts.serial[0] = signed(self._launched + 1)

    def launched(self) -> None:
        """The step described last runs, or will; a step that needed no description has its turn as well."""
        self._launched += 1


def signed(serial: int) -> int:
    """The same modulo `SERIALS`, as an int32 has it."""
    return (serial + SERIALS // 2) % SERIALS - SERIALS // 2
