"""The core loop: plan, launch, collect, commit, in step or one step ahead."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Protocol

from pellucid.engine.scheduler import Progress, Scheduler
from pellucid.engine.sequence import Sequence
from pellucid.errors import EngineStopped
from pellucid.plan.request import Request
from pellucid.plan.step import StepPlan, StepResult


class Executor(Protocol):
    """Whatever turns plans into results: a runner with a model, or forced tokens."""

    def launch(self, plan: StepPlan) -> None:
        """Start working on ``plan``; at most two plans are under way at once."""

    def collect(self) -> StepResult:
        """The result of the oldest plan not collected yet, once it is there."""


class EngineCore:
    """One scheduler and one executor.

    Synchronous: each `step` launches a plan and commits its own result. Asynchronous: each `step`
    launches a plan and then commits the result of the one before, so that planning overlaps with
    running; the first call returns nothing, and `drain` commits what is still under way.

    Whatever strikes in the middle of a step (an error of the runner, an interrupt) leaves scheduler
    and runner at odds, so the engine stops for good: every call then raises `EngineStopped`.

    Whatever writes to the journal does so inside ``turn`` (see `Broadcast`).
    """

    def __init__(
        self,
        scheduler: Scheduler,
        executor: Executor,
        *,
        asynchronous: bool = False,
        turn: AbstractContextManager[None] | None = None,
    ) -> None:
        self.scheduler = scheduler
        self.executor = executor
        self.asynchronous = asynchronous
        self._turn = nullcontext() if turn is None else turn
        self._stopped: str | None = None

    def add(self, request: Request) -> Sequence:
        """Queue a request (see `Scheduler.add`)."""
        self._refuse_if_stopped()
        with self._turn:
            return self.scheduler.add(request)

    def abort(self, name: str) -> Sequence:
        """End a live request now (see `Scheduler.abort`)."""
        with self._turn:
            return self.scheduler.abort(name)

    def move(self, block: int, to: int) -> None:
        """Move a live block between two steps (see `Scheduler.move`)."""
        self._refuse_if_stopped()
        with self._turn:
            self.scheduler.move(block, to)

    def has_unfinished_requests(self) -> bool:
        return self._stopped is None and self.scheduler.has_unfinished_requests()

    def step(self) -> list[Progress]:
        """Launch the next plan, if there is anything to plan, and commit what is due."""
        self._refuse_if_stopped()
        with self._turn, self._stopping():
            plan = self.scheduler.schedule()
            if plan.handles:
                self.executor.launch(plan)
            ahead = 1 if self.asynchronous and plan.handles else 0
            return self._commit_down_to(ahead)

    def drain(self) -> list[Progress]:
        """Commit every launched plan without planning another; nothing if the engine has stopped."""
        if self._stopped is not None:
            return []
        with self._turn, self._stopping():
            return self._commit_down_to(0)

    def _commit_down_to(self, ahead: int) -> list[Progress]:
        progress: list[Progress] = []
        while len(self.scheduler.launched) > ahead:
            progress += self.scheduler.commit(self.executor.collect())
        return progress

    @contextmanager
    def _stopping(self) -> Iterator[None]:
        try:
            yield
        except BaseException as error:
            self._stopped = f"in step {self.scheduler.kv.step}, by {type(error).__name__}"
            raise

    def _refuse_if_stopped(self) -> None:
        if self._stopped is not None:
            raise EngineStopped(
                f"the engine was stopped {self._stopped}, and cannot go on; make a new one (LLM(old.loaded, ...) "
                "takes over the weights) and send its requests again."
            )
