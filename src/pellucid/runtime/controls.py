"""What each row asks of the sampler, on the device: written when a request is admitted, read in every step."""

from __future__ import annotations

import struct
from collections.abc import Sequence

import numpy as np
import torch

from pellucid.errors import RequestError
from pellucid.runtime.noise import mix, signed
from pellucid.runtime.sampler import GREEDY_BELOW, Draw

FIELDS = struct.Struct("=fiffqi")
"""Temperature, top-k, top-p, min-p, mixed seed, the position before which no stop token may come: seven words."""
WORDS = struct.Struct("=7i")
"""The same, as the tensor has them."""
WORD_BYTES = 4
LARGEST = 2**31 - 1
NO_TOKEN = -1


class Controls:
    """A line of 32-bit words per row, [lines, width] int32, all in one tensor: `words`.

    A line holds the fields of `FIELDS` and then ``forbidden_width`` token ids that may not be sampled below
    ``min_tokens`` (-1 where there are fewer). `record` makes the words of one line on the host. Whoever scatters them
    to ``words[line]`` has admitted the row: `put` does, or a kernel that is sent them among other things.

    Beside it are the sampler's notes, a line per row too, which nobody else touches: the lowest logit that the filters
    keep (`least`), the best token so far (`best`) and how many parts of the vocabulary have been searched (`searched`).
    """

    def __init__(self, lines: int, forbidden_width: int, device: torch.device) -> None:
        self.forbidden_width = forbidden_width
        self.width = FIELDS.size // WORD_BYTES + forbidden_width
        self.words = torch.zeros(lines, self.width, dtype=torch.int32, device=device)
        self.least = torch.zeros(lines, dtype=torch.float32, device=device)
        self.best = torch.full((lines,), -(2**63), dtype=torch.int64, device=device)
        self.searched = torch.zeros(lines, dtype=torch.int32, device=device)

    def record(self, draw: Draw, eos_token_ids: Sequence[int] = ()) -> tuple[int, ...]:
        """The `width` words of the row that ``draw`` belongs to, the same for all its positions.

        Raises `RequestError` for a row with more forbidden tokens than a line has room for.
        """
        sampling = draw.sampling
        forbidden = [*sampling.stop_token_ids, *eos_token_ids] if sampling.min_tokens else []
        if len(forbidden) > self.forbidden_width:
            raise RequestError(
                f"{len(forbidden)} tokens may not be sampled before min_tokens={sampling.min_tokens} and there is room "
                f"for {self.forbidden_width}: give fewer stop_token_ids, or min_tokens=0."
            )
        fields = FIELDS.pack(
            draw.temperature if sampling.temperature >= GREEDY_BELOW else 0.0,
            min(sampling.top_k, LARGEST),
            sampling.top_p,
            sampling.min_p,
            signed(mix(draw.seed)),
            min(draw.position - draw.output_index + sampling.min_tokens, LARGEST),
        )
        return *WORDS.unpack(fields), *forbidden, *[NO_TOKEN] * (self.forbidden_width - len(forbidden))

    def put(self, lines: Sequence[int], records: Sequence[Sequence[int]]) -> None:
        """Write each record to its line. One copy of pinned words and one scatter, neither of which is waited for."""
        rows = [(line, *record) for line, record in zip(lines, records, strict=True)]
        staged = torch.from_numpy(np.array(rows, np.int32))
        if self.words.is_cuda:
            staged = staged.pin_memory().to(self.words.device, non_blocking=True)
        self.words[staged[:, 0].long()] = staged[:, 1:]
