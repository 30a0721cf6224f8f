"""Engines on which pre-emption, chunks, company or planning ahead make a difference."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from lab import faults
from lab.faults import Refutes, in_scenario
from pellucid.kv.acts import Admit, AnyAct, Launch
from pellucid.kv.table import RequestStatus


def answers_otherwise(scenario: str, name: str) -> faults.Fault:
    return in_scenario(scenario, lambda run: faults.another_token(run, name))


def computes(scenario: str, name: str, more: int, number: int = 0) -> faults.Fault:
    """So many tokens more than needed, or fewer, in one plan of ``name``."""

    def changed(act: Launch) -> Launch:
        counts = [count + more * (who == name) for who, count in zip(act.requests, act.counts, strict=True)]
        return replace(act, counts=tuple(counts))

    def plan_of_it(act: AnyAct) -> bool:
        return isinstance(act, Launch) and name in act.requests

    return in_scenario(scenario, lambda run: faults.with_the_act(run, plan_of_it, changed, number))


def keeps_its_blocks(view: faults.RequestView) -> faults.RequestView:
    return replace(view, blocks=(9, 10)) if view.status is RequestStatus.PREEMPTED else view


def in_requests(run: faults.Recording, **change: Any) -> faults.Recording:
    return faults.in_snapshots(
        run, lambda shot: replace(shot, requests=tuple(replace(view, **change) for view in shot.requests))
    )


def believes_that_all_is_there(run: faults.Recording) -> faults.Recording:
    """The victim comes back and goes on where it was, though its blocks had been given away."""
    return faults.with_the_act(
        run, lambda act: isinstance(act, Admit) and act.request == "P2", lambda act: replace(act, computed=64), 1
    )


REFUTES = [
    Refutes("preemption", "the victim answers otherwise", answers_otherwise("pressure", "P2"), "of P2 differs"),
    Refutes("preemption", "who stays answers otherwise", answers_otherwise("pressure", "P0"), "of P0 differs"),
    Refutes(
        "preemption",
        "the victim keeps blocks",
        in_scenario(
            "pressure",
            lambda run: faults.in_snapshots(
                run, lambda shot: replace(shot, requests=tuple(map(keeps_its_blocks, shot.requests)))
            ),
        ),
        "P2 is pre-empted and holds blocks 9-10",
    ),
    Refutes(
        "preemption",
        "nobody counts it",
        in_scenario("pressure", lambda run: in_requests(run, preemptions=0)),
        "P2 counts 0 pre-emptions, and the journal tells 1",
    ),
    Refutes(
        "preemption",
        "what was lost is not computed again",
        in_scenario("pressure", believes_that_all_is_there),
        "P2 computed",
    ),
    Refutes("chunking", "another answer", answers_otherwise("chunked", "five"), "of five differs"),
    Refutes("chunking", "a plan over the budget", computes("chunked", "five", 3), "11 tokens, and 8 are allowed"),
    Refutes("chunking", "a gap between chunks", computes("chunked", "five", -2, number=1), "five computed 43 tokens"),
    Refutes("batching", "another answer", answers_otherwise("in step", "three"), "of three differs"),
    Refutes("batching", "a token less", computes("in step", "one", -1), "one computed 13 tokens"),
    Refutes("planning-ahead", "another answer", answers_otherwise("ahead", "one"), "of one differs"),
    Refutes("planning-ahead", "a token twice", computes("ahead", "three", 1, number=2), "three computed 29 tokens"),
]
