"""The core loop: plan, launch, collect, commit, in step or one step ahead."""

from __future__ import annotations

from typing import Protocol

from pellucid.engine.scheduler import Progress, Scheduler
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
    """

    def __init__(self, scheduler: Scheduler, executor: Executor, *, asynchronous: bool = False) -> None:
        self.scheduler = scheduler
        self.executor = executor
        self.asynchronous = asynchronous

    def has_unfinished_requests(self) -> bool:
        return self.scheduler.has_unfinished_requests()

    def step(self) -> list[Progress]:
        """Launch the next plan, if there is anything to plan, and commit what is due."""
        plan = self.scheduler.schedule()
        if plan.handles:
            self.executor.launch(plan)
        ahead = 1 if self.asynchronous and plan.handles else 0
        return self._commit_down_to(ahead)

    def drain(self) -> list[Progress]:
        """Commit every launched plan without planning another."""
        return self._commit_down_to(0)

    def _commit_down_to(self, ahead: int) -> list[Progress]:
        progress: list[Progress] = []
        while len(self.scheduler.launched) > ahead:
            progress += self.scheduler.commit(self.executor.collect())
        return progress
