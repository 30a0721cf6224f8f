"""What verify2 must print, calculated from its numbers alone: a paged pool made of plain lists.

Deliberately none of the engine's code. Fresh blocks go out in ascending order, a table comes back last
block first, and what came back first goes out first. Every step plans before it sees what the step
before it made, so a request leaves one step after its last token was planned.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

TOKENS_A_STEP = 2048


class OutsideTheCalculation(Exception):
    """A running request finds no block: somebody would be pre-empted, which is not calculated here."""


@dataclass
class Job:
    name: str
    prompt: int
    limit: int  # tokens in all
    planned: int = 0  # tokens whose making has been planned
    slots: int = 0
    table: list[int] = field(default_factory=list)

    @property
    def is_planned_out(self) -> bool:
        return self.prompt + self.planned == self.limit


class ListPool:
    def __init__(self, pool: int, block: int) -> None:
        self.block = block
        self.free = deque(range(1, pool))
        self.running: list[Job] = []
        self.waiting: deque[Job] = deque()
        self.ending: list[Job] = []

    def add(self, name: str, prompt: int, max_tokens: int, max_model_len: int) -> None:
        self.waiting.append(Job(name, prompt, min(prompt + max_tokens, max_model_len)))

    def step(self) -> None:
        budget, ending = TOKENS_A_STEP, []
        for job in list(self.running):
            if not job.is_planned_out:
                budget -= self._compute(job, budget)
        while self.waiting and budget and -(-self.waiting[0].prompt // self.block) <= len(self.free):
            job = self.waiting.popleft()
            self.running.append(job)
            budget -= self._compute(job, budget)
        ending = [job for job in self.running if job.is_planned_out and job not in self.ending]
        for job in self.ending:
            self.running.remove(job)
            self.free.extend(reversed(job.table))
        self.ending = ending

    def _compute(self, job: Job, budget: int) -> int:
        count = min(job.prompt + job.planned - job.slots, budget)
        job.slots += count
        while len(job.table) * self.block < job.slots:
            if not self.free:
                raise OutsideTheCalculation(job.name)
            job.table.append(self.free.popleft())
        job.planned += job.slots == job.prompt + job.planned
        return count

    def table(self, name: str) -> list[int] | None:
        """The blocks of a request that holds some, else None: what ``blocks_of`` of the script returns."""
        return next((list(job.table) for job in self.running if job.name == name), None)


@dataclass
class Expected:
    tables: list[list[int] | None]  # of R0, R1, R2 after two steps
    hole_missing: bool  # R1 held nothing by then, so the script ends with a TypeError
    refused: bool = False  # NEW is longer than max_model_len allows
    new: list[int] = field(default_factory=list)


def verify2(pool: int, block: int, max_model_len: int, bodies: list[int], need: int) -> Expected:
    """Everything that `verify2_holes.py` finds out with these sizes; ``bodies`` and ``need`` are in tokens."""
    blocks = ListPool(pool, block)
    for i, (length, most) in enumerate(zip(bodies, (400, 2, 400), strict=True)):
        blocks.add(f"R{i}", length, most, max_model_len)
    for _ in range(2):
        blocks.step()
    expected = Expected([blocks.table(f"R{i}") for i in range(3)], blocks.table("R1") is None)
    if expected.hole_missing:
        return expected
    for _ in range(20):
        blocks.step()
        if blocks.table("R1") is None:
            break
    expected.refused = need >= max_model_len
    if expected.refused:
        return expected
    blocks.add("NEW", need, 4, max_model_len)
    for _ in range(15):
        blocks.step()
        expected.new = blocks.table("NEW") or []
        if expected.new:
            break
    return expected
