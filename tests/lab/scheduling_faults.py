"""Engines on which pre-emption, chunks, company or planning ahead make a difference."""

from __future__ import annotations

from collections.abc import Callable

from msgspec.structs import replace

from lab import faults
from lab.faults import Fault, Recording
from pellucid.kv.acts import Admit, AnyAct, Launch, Open, Preempt, Return, Take
from pellucid.kv.table import RequestStatus


def answers_otherwise(name: str) -> Callable[[Recording], Recording]:
    return lambda run: faults.another_token(run, name)


def computes(name: str, more: int, number: int = 0) -> Callable[[Recording], Recording]:
    """So many tokens more than needed, or fewer, in one plan of ``name``."""

    def changed(act: Launch) -> Launch:
        counts = [count + more * (who == name) for who, count in zip(act.requests, act.counts, strict=True)]
        return replace(act, counts=tuple(counts))

    def plan_of_it(act: AnyAct) -> bool:
        return isinstance(act, Launch) and name in act.requests

    return lambda run: faults.with_the_act(run, plan_of_it, changed, number)


def keeps_its_blocks(run: Recording) -> Recording:
    def kept(view: faults.RequestView) -> faults.RequestView:
        return replace(view, tables=((9, 10),)) if view.status is RequestStatus.PREEMPTED else view

    return in_requests(run, kept)


def in_requests(run: Recording, change: Callable[[faults.RequestView], faults.RequestView]) -> Recording:
    return faults.in_snapshots(run, lambda shot: replace(shot, requests=tuple(map(change, shot.requests))))


def believes_that_all_is_there(run: Recording) -> Recording:
    """The victim comes back and goes on where it was, though its blocks had been given away."""
    return faults.with_the_act(
        run, lambda act: isinstance(act, Admit) and act.request == "P2", lambda act: replace(act, computed=64), 1
    )


def names_exchanged(run: Recording, one: str, other: str, *kinds: type) -> Recording:
    """The acts of ``kinds`` of the two requests are each other's."""
    names = {one: other, other: one}

    def exchanged(act: AnyAct) -> AnyAct:
        return replace(act, request=names.get(act.request, act.request)) if isinstance(act, kinds) else act

    return faults.with_acts(run, exchanged)


def first_gives_way(run: Recording) -> Recording:
    """As if `P2`, which gave way, had come and been admitted first."""
    return names_exchanged(run, "P0", "P2", Open, Admit)


def admits_while_somebody_gives_way(run: Recording) -> Recording:
    """The next admission is in the step of the pre-emption."""
    step = next(act.step for act in run.acts or () if isinstance(act, Preempt))

    def back(act: AnyAct) -> bool:
        return isinstance(act, Admit) and act.step > step

    return faults.with_the_act(run, back, lambda act: replace(act, step=step))


def takes_what_is_being_written(run: Recording) -> Recording:
    """`next 1` gets the block to which `walker`'s last step still writes, not one of its own."""
    written = next(act for act in run.acts or () if isinstance(act, Return) and act.request == "walker").fenced[0]

    def first_take(act: AnyAct) -> bool:
        return isinstance(act, Take) and act.request == "next 1"

    return faults.with_the_act(run, first_take, lambda act: replace(act, blocks=(written, *act.blocks[1:])))


PREEMPTION = [
    Fault(
        "the victim answers otherwise",
        "`P2`, which was pre-empted, gets another last token than with room.",
        "pressure",
        answers_otherwise("P2"),
        {"preemption": "of P2 differs"},
    ),
    Fault(
        "who stays answers otherwise",
        "`P0`, for which room was made, gets another last token than with room.",
        "pressure",
        answers_otherwise("P0"),
        {"preemption": "of P0 differs"},
    ),
    Fault(
        "the victim keeps blocks",
        "`P2` waits, pre-empted, and still holds two blocks.",
        "pressure",
        keeps_its_blocks,
        {"preemption": "P2 is pre-empted and holds blocks 9-10"},
    ),
    Fault(
        "nobody counts a pre-emption",
        "`P2` is pre-empted, and its count stays 0.",
        "pressure",
        lambda run: in_requests(run, lambda view: replace(view, preemptions=0)),
        {"preemption": "P2 counts 0 pre-emptions, and the journal tells 1"},
    ),
    Fault(
        "what was lost is not computed again",
        "`P2` comes back and goes on where it was, though its blocks had been given away.",
        "pressure",
        believes_that_all_is_there,
        {"preemption": "P2 computed"},
    ),
    Fault(
        "the first gives way",
        "`P2`, which came and was admitted first, has to give way, though the engine says: first come, first served.",
        "pressure",
        first_gives_way,
        {"preemption": "P2 had to give way, and P0 was the last"},
    ),
    Fault(
        "a victim goes to the back",
        "`P3`, which has never run, is admitted before `P2`, which had to give way.",
        "pressure",
        lambda run: names_exchanged(run, "P2", "P3", Admit),
        {"preemption": "P3 was admitted, and P2 was before it"},
    ),
    Fault(
        "last come, first served",
        "`P0` came after `P3`, and is admitted before it.",
        "pressure",
        lambda run: names_exchanged(run, "P0", "P3", Open),
        {"preemption": "P0 was admitted, and P3 was before it"},
    ),
    Fault(
        "admitted in a pinch",
        "`P2` is admitted again in the very step in which it had to give way.",
        "pressure",
        admits_while_somebody_gives_way,
        {"preemption": "in a step in which another had to give way"},
    ),
]

SCHEDULES = [
    Fault(
        "another answer in chunks",
        "`five`, its prompt in chunks, gets another last token than in one piece.",
        "chunked",
        answers_otherwise("five"),
        {"chunking": "of five differs"},
    ),
    Fault(
        "a plan over the budget",
        "A plan computes 3 tokens more than a step may.",
        "chunked",
        computes("five", 3),
        {"chunking": "11 tokens, and 8 are allowed"},
    ),
    Fault(
        "a gap between chunks",
        "The second chunk of `five` is 2 tokens short, and the third does not make up for it.",
        "chunked",
        computes("five", -2, number=1),
        {"chunking": "five computed 43 tokens"},
    ),
    Fault(
        "another answer in company",
        "`three`, in a batch with others, gets another last token than alone.",
        "in step",
        answers_otherwise("three"),
        {"batching": "of three differs"},
    ),
    Fault(
        "a token is not computed",
        "A plan computes one token of `one` less than there is.",
        "in step",
        computes("one", -1),
        {"batching": "one computed 13 tokens"},
    ),
    Fault(
        "another answer ahead",
        "`one`, planned a step ahead, gets another last token than in step.",
        "ahead",
        answers_otherwise("one"),
        {"planning-ahead": "of one differs"},
    ),
    Fault(
        "a token is computed twice",
        "A plan made ahead computes a token of `three` that was computed before.",
        "ahead",
        computes("three", 1, number=2),
        {"planning-ahead": "three computed 29 tokens"},
    ),
    Fault(
        "a block is used again too early",
        "`next 1` gets a block to which the last step of `walker`, which has left, may still write.",
        "leaving",
        takes_what_is_being_written,
        {"planning-ahead": "while step"},
    ),
    Fault(
        "another answer when somebody leaves",
        "`reader`, which shares blocks of `writer`, gets another last token when that leaves in mid-step.",
        "leaving",
        answers_otherwise("reader"),
        {"planning-ahead": "of reader differs"},
    ),
]

FAULTS = [*PREEMPTION, *SCHEDULES]
