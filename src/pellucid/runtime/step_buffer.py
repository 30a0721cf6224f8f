"""What the host tells the device about a step: one buffer of small integers, sent in one copy."""

from __future__ import annotations

from itertools import cycle
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


class Columns(NamedTuple, Generic[T]):
    """The buffer in its parts, all int32: views of numpy's on the host and of torch's on the device."""

    query_start: T
    """[R + 1]: where each row's tokens begin among the step's."""
    ends: T
    """[R]: tokens of each row that have KV after the step, the position of the token it may sample; 0: padding."""
    lines: T
    """[R]: of each row in the tables."""
    sampling: T
    """[R]: the same where the row samples, `PADDING` where it does not."""
    appended: T
    """[1]: how many blocks are appended to tables."""
    places: T
    """[appended]: where in the flat block table they go."""
    blocks: T
    """[appended]: which they are."""


class StepBuffer:
    """One buffer on the device, at a fixed address, and as many pinned ones on the host as steps may be in flight.

    A pinned buffer is written to again two launches later. The step it served last is collected by then, so
    its copy was made long ago, and nothing has to wait for it.
    """

    def __init__(self, rows: int, room: int, device: torch.device | str) -> None:
        self.room = room
        """How many appended blocks fit."""
        sizes = (rows + 1, rows, rows, rows, 1, room, room)
        pinned = torch.device(device).type == "cuda"
        self._packed = torch.zeros(sum(sizes), dtype=torch.int32, device=device)
        hosts = [torch.zeros(sum(sizes), dtype=torch.int32, pin_memory=pinned) for _ in range(MAX_IN_FLIGHT)]
        cuts = np.cumsum(sizes)[:-1]
        self._hosts = cycle([(host, Columns[Numbers](*np.split(host.numpy(), cuts))) for host in hosts])
        self._ordinal = np.arange(rows + 1, dtype=np.int32)
        self.device = Columns[torch.Tensor](*self._packed.split(sizes))
        self.clear()

    def clear(self) -> None:
        """Describe a step of nothing but padding."""
        self._packed.zero_()
        self.device.sampling.fill_(PADDING)

    def send(self, ranges: Ranges, bucket: Bucket, appended: Appended) -> None:
        """Describe a step, padded to ``bucket``, that appends at most ``room`` blocks, and send it on its way."""
        host, parts = next(self._hosts)
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
        self._packed.copy_(host, non_blocking=True)
