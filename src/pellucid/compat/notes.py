"""What a run says on stderr: remarks while it goes on, and at its end where a script's number is no evidence."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

from pellucid.compat.record import EngineRecord

GPU_COUNTERS = ("memory_allocated", "max_memory_allocated", "memory_reserved", "max_memory_reserved")


class Notes:
    """Remarks about one run: a record for each engine, and the GPU counters that the script asked."""

    def __init__(self) -> None:
        self.records: list[EngineRecord] = []
        self._asked: dict[str, None] = {}

    def say(self, remark: str) -> None:
        """One line now."""
        print(f"pellucid: {remark}", file=sys.stderr, flush=True)

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Hear which of ``torch.cuda``'s counters are asked; they answer as ever."""
        counters = {name: getattr(torch.cuda, name) for name in GPU_COUNTERS}
        for name, counter in counters.items():
            setattr(torch.cuda, name, self._heard(name, counter))
        try:
            yield
        finally:
            for name, counter in counters.items():
                setattr(torch.cuda, name, counter)

    def _heard(self, name: str, counter: Callable[..., int]) -> Callable[..., int]:
        @functools.wraps(counter)
        def asked(*args: Any, **options: Any) -> int:
            self._asked[name] = None
            return counter(*args, **options)

        return asked

    def close(self) -> None:
        """The evidence, once the script has ended; nothing if it made no engine."""
        sys.stdout.flush()
        if not self.records:
            return
        self.say("what this run's numbers are worth:")
        for line in self._lines():
            print(f"  {line}", file=sys.stderr, flush=True)

    def _lines(self) -> Iterator[str]:
        for record in self.records:
            if record.model != record.named:
                yield f"model: {record.model}, in place of the script's {record.named}."
            yield f"{record.num_blocks:,} blocks are {record.num_blocks - 1:,} usable: block 0 is reserved."
            yield whereabouts(record)
        if self._asked:
            asked = " and ".join(f"torch.cuda.{name}()" for name in self._asked)
            yield f"what {asked} said is no evidence: it counts GPU bytes. The pool's address and size above are."
        if any(record.ids_read for record in self.records):
            yield "internal ids end in a random tail: look a request up by the exact id that add_request() returned."


def whereabouts(record: EngineRecord) -> str:
    """Where the pool was at the first step and at the last, and whether it was there all the time."""
    first, last = record.first, record.last
    start = f"KV pool: {first.nbytes:,} bytes ({first.nbytes / 1024**2:,.1f} MiB) at {first.address:#x}"
    if not record.steps:
        return f"{start}; no step was made."
    if record.moved_at is None:
        return f"{start} before the first step, and the same after each of {record.steps} steps."
    return (
        f"{start} before the first step, {last.nbytes:,} bytes at {last.address:#x} after the last: "
        f"CHANGED in step {record.moved_at} of {record.steps}."
    )
