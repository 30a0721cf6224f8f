"""Tokens on their way from the device to the host."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from pellucid.runtime.flight import MAX_IN_FLIGHT


class Result(NamedTuple):
    """The tokens of one step, once ``done`` has happened: ``tokens`` [R] of which the ``rows`` sampled."""

    tokens: NDArray[np.int64]
    rows: NDArray[np.intp]
    done: torch.cuda.Event | None

    def wait(self) -> tuple[int, ...]:
        """Wait for the step, and for nothing after it: one token for each row that sampled."""
        if self.done is not None:
            self.done.synchronize()
        return tuple(self.tokens[self.rows].tolist())


class Results:
    """Memory of the host for the tokens of as many steps as may be in flight, and an event for each.

    ``tokens`` [turns, R] int64 is pinned, so that the last kernel of a step writes there itself.
    """

    def __init__(self, rows: int, device: torch.device) -> None:
        on_gpu = device.type == "cuda"
        self.tokens = torch.zeros(MAX_IN_FLIGHT, rows, dtype=torch.int64, pin_memory=on_gpu)
        self._seen = self.tokens.numpy()
        self._done = [torch.cuda.Event() if on_gpu else None for _ in range(MAX_IN_FLIGHT)]

    def of(self, turn: int, samples: NDArray[np.bool_]) -> Result:
        """What will have come at ``turn`` once all that the current stream was given is done."""
        done = self._done[turn]
        if done is not None:
            done.record()
        return Result(self._seen[turn], samples.nonzero()[0], done)
