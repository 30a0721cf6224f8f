"""Plain data between the scheduler and the runner, and between a caller and the scheduler."""

from pellucid.plan.request import Request
from pellucid.plan.sampling import SamplingParams
from pellucid.plan.step import Admission, StepPlan, StepResult

__all__ = ["Admission", "Request", "SamplingParams", "StepPlan", "StepResult"]
