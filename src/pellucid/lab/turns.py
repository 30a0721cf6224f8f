"""Whose turn it was: admission and pre-emption held against the rule that an engine names as its own.

"First come, first served" (``fcfs``, as in vLLM): the head of the waiting queue is admitted, and nobody in a step that
pre-empted; the last that was admitted gives way, and goes to the front of the queue.
"""

from __future__ import annotations

from collections.abc import Iterable

from pellucid.kv.acts import Admit, AnyAct, Close, Open, Preempt
from pellucid.lang import say

FIRST_COME = "fcfs"


class Turns:
    """The queue and the running list as they must be, act by act."""

    def __init__(self) -> None:
        self.waiting: list[str] = []
        self.running: list[str] = []
        self._pressed = -1

    def follow(self, act: AnyAct) -> str | None:
        """Take one act into account; what is wrong with it, if anything."""
        match act:
            case Open():
                self.waiting.append(act.request)
            case Admit():
                return self._admit(act)
            case Preempt():
                return self._preempt(act)
            case Close():
                for queue in (self.waiting, self.running):
                    if act.request in queue:
                        queue.remove(act.request)
            case _:
                pass
        return None

    def _admit(self, act: Admit) -> str | None:
        if act.step == self._pressed:
            return say("{name} was admitted in a step in which another had to give way.", name=act.request)
        if self.waiting[:1] != [act.request]:
            return say(
                "{name} was admitted, and {first} was before it in the queue.",
                name=act.request,
                first=self.waiting[0] if self.waiting else "-",
            )
        self.running.append(self.waiting.pop(0))
        return None

    def _preempt(self, act: Preempt) -> str | None:
        self._pressed = act.step
        if self.running[-1:] != [act.request]:
            return say(
                "{name} had to give way, and {last} was the last that had been admitted.",
                name=act.request,
                last=self.running[-1] if self.running else "-",
            )
        self.waiting.insert(0, self.running.pop())
        return None


def out_of_turn(acts: Iterable[AnyAct]) -> str | None:
    """The first act that contradicts ``fcfs``, in a recording that begins with an idle engine."""
    turns = Turns()
    return next((wrong for act in acts if (wrong := turns.follow(act))), None)
