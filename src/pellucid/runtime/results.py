"""Tokens on their way from the device to the host."""

from __future__ import annotations

from itertools import cycle
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
    """Pinned memory for the tokens of as many steps as may be in flight, and an event for each."""

    def __init__(self, rows: int, device: torch.device) -> None:
        on_gpu = device.type == "cuda"
        self._slots = cycle(
            [
                (torch.zeros(rows, dtype=torch.int64, pin_memory=on_gpu), torch.cuda.Event() if on_gpu else None)
                for _ in range(MAX_IN_FLIGHT)
            ]
        )

    def fetch(self, tokens: torch.Tensor, samples: NDArray[np.bool_]) -> Result:
        """Send ``tokens`` (as many as rows fit) to the host, after all that the current stream was given before."""
        pinned, done = next(self._slots)
        pinned.copy_(tokens, non_blocking=True)
        if done is not None:
            done.record()
        return Result(pinned.numpy(), samples.nonzero()[0], done)
