"""What was seen of a run, step by step. Claims judge recordings, never engines.

So a recording of any engine can be judged, and a fault can be put into one to see whether a claim
notices.
"""

from __future__ import annotations

from msgspec import Struct

from pellucid.kv.acts import AnyAct
from pellucid.kv.memory import PoolMemory
from pellucid.kv.snapshot import RequestView, Snapshot
from pellucid.kv.table import RequestStatus
from pellucid.lab.subject import About, Output


class Submission(Struct, frozen=True):
    """A request as it was added: greedy, to exactly ``max_tokens`` tokens."""

    prompt: tuple[int, ...]
    max_tokens: int
    salt: str | None = None


class Frame(Struct, frozen=True, kw_only=True):
    """Everything observed after step ``step`` of a recording; 0 is before its first.

    ``added``, ``aborted`` and ``moved`` (live blocks, and where each went, in order) happened since the
    frame before. ``received`` counts the output tokens each request of the recording has delivered so
    far. ``violations`` are what an audit from inside found, None where there is none.
    """

    step: int
    added: tuple[str, ...]
    aborted: tuple[str, ...]
    snapshot: Snapshot
    memory: PoolMemory | None
    received: dict[str, int]
    violations: tuple[str, ...] | None
    moved: tuple[tuple[int, int], ...] = ()

    def live(self, name: str) -> RequestView | None:
        """The request in this frame's snapshot, None if it is not there."""
        return next((request for request in self.snapshot.requests if request.name == name), None)

    def blocks(self, name: str) -> tuple[int, ...]:
        """Its table in this frame; empty if it waits or is not there."""
        request = self.live(name)
        return request.blocks if request else ()

    def running(self) -> tuple[RequestView, ...]:
        return tuple(request for request in self.snapshot.requests if request.status is RequestStatus.RUNNING)


class Recording(Struct, frozen=True, kw_only=True):
    """One scenario on one engine.

    ``engine`` numbers the engines of a trial: recordings of the same number were taken one after the
    other from the same engine. ``acts`` is the journal from the first frame on, None without one.
    ``outputs`` is the last that each request delivered.
    """

    scenario: str
    engine: int
    about: About
    requests: dict[str, Submission]
    frames: tuple[Frame, ...]
    acts: tuple[AnyAct, ...] | None
    outputs: dict[str, Output]

    @property
    def steps(self) -> int:
        return self.frames[-1].step

    @property
    def usable(self) -> int:
        """Blocks that requests can hold."""
        return self.frames[0].snapshot.pool.usable

    @property
    def block_size(self) -> int:
        return self.frames[0].snapshot.pool.block_size

    def blocks_for(self, tokens: int) -> int:
        return -(-tokens // self.block_size)

    def served(self, name: str) -> int | None:
        """The first frame in which the whole prompt of ``name`` has its blocks."""
        prompt = len(self.requests[name].prompt)
        for index, frame in enumerate(self.frames):
            request = frame.live(name)
            if request is not None and request.slots >= prompt:
                return index
        return None

    def admitted(self, name: str) -> int | None:
        """The first frame in which ``name`` holds blocks."""
        return next((index for index, frame in enumerate(self.frames) if frame.blocks(name)), None)
