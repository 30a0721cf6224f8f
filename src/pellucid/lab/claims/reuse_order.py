"""Claim: the order in which blocks are used again is the one the engine says; it is found out by watching."""

from __future__ import annotations

from typing import Any, NamedTuple

from pellucid.kv.acts import AnyAct, Commit, Evict, Publish, Return, Share, Take, Unpublish
from pellucid.kv.block import Content
from pellucid.kv.identity import ROOT
from pellucid.kv.policy import REUSE_POLICIES
from pellucid.kv.pool import BlockPool
from pellucid.lab.claim import Claim, Recordings
from pellucid.lab.proof import Finding, Table, Verdict, not_observable, refuted
from pellucid.lab.recording import Recording
from pellucid.lab.scenarios.pressure import PRESSURE
from pellucid.lab.scenarios.reuse import REUSE
from pellucid.lang import names_of, say
from pellucid.view import runs


class Taking(NamedTuple):
    """``request`` took ``blocks`` in this order in ``step``. ``again`` of them had been used before."""

    step: int
    request: str
    blocks: tuple[int, ...]
    again: int


class Parting(NamedTuple):
    """The first taking in which a policy would have given other blocks."""

    number: int
    expected: tuple[int, ...]


class Candidate:
    """A pool under one policy, given everything that the journal tells but for the choice of blocks."""

    def __init__(self, policy: str, blocks: int) -> None:
        self.policy = policy
        self._pool = BlockPool(blocks, policy)

    def choose(self, count: int) -> tuple[int, ...]:
        """The blocks that it would give out now."""
        return tuple(block.id for block in self._pool.take(count))

    def follow(self, act: AnyAct) -> None:
        """Any other act than a `Take`."""
        pool, blocks = self._pool, self._pool.blocks
        match act:
            case Share():
                pool.share([blocks[i] for i in act.blocks])
            case Publish():
                for i, identity in zip(act.blocks, act.identities, strict=True):
                    pool.publish(blocks[i], Content(identity, ROOT, (), b"", identity))
            case Evict() | Unpublish():
                pool.unpublish([blocks[i] for i in act.blocks])
            case Return():
                pool.give_back([blocks[i] for i in act.blocks], act.fence, frozenset(act.fenced))
            case Commit():
                pool.lift_fence(act.launched)
            case _:
                pass


def judge(recordings: Recordings) -> Finding:
    """From the acts alone: what each known policy would have given out, beside what was given out."""
    run = recordings[REUSE.name]
    acts = _acts(run, recordings.get(PRESSURE.name))
    if acts is None:
        return not_observable(say("This engine keeps no journal, so the order of re-use cannot be seen."))
    pool = run.frames[0].snapshot.pool
    if pool.taken:
        return not_observable(say("The pool had been used before, so its order was not known."))
    watch = Watch(acts, pool.total)
    if watch.wrong:
        return refuted(watch.wrong)
    takings = watch.takings
    if not any(taking.again for taking in takings):
        return not_observable(say("No block was used twice."))
    partings = {name: _parting(name, acts, pool.total) for name in REUSE_POLICIES}
    said = pool.reuse_policy
    if parting := partings.get(said):
        return refuted(_contradiction(said, takings[parting.number], parting, partings))
    return _proved(run, said, takings, partings)


def _acts(run: Recording, more: Recording | None) -> tuple[AnyAct, ...] | None:
    """Those of ``run``, and of ``more`` where it was taken from the same engine right after."""
    if run.acts is None or more is None or more.acts is None or more.engine != run.engine:
        return run.acts
    follows = more.frames[0].snapshot.acts == run.frames[-1].snapshot.acts
    return (*run.acts, *more.acts) if follows else run.acts


class Watch:
    """Who holds what, whatever the order: every taking, and the first act that cannot have happened."""

    def __init__(self, acts: tuple[AnyAct, ...], total: int) -> None:
        self.takings: list[Taking] = []
        self.wrong: str | None = None
        self._owners, self._fences = [0] * total, [0] * total
        self._findable, self._used = [False] * total, [False] * total
        for act in acts:
            if wrong := self._impossible(act):
                self.wrong = wrong
                return
            self._follow(act)

    def _impossible(self, act: AnyAct) -> str | None:
        blocks: tuple[int, ...] = getattr(act, "blocks", ())
        twice = len(set(blocks)) < len(blocks)
        match act:
            case Take():
                reclaimable = self._reclaimable()
                wrong = twice or not set(act.blocks) <= set(reclaimable)
                told = say(
                    "took blocks {blocks}, and {free} could be had", blocks=runs(act.blocks), free=runs(reclaimable)
                )
            case Return():
                wrong = twice or any(not self._owners[i] for i in act.blocks)
                told = say("returned blocks {blocks}, and did not hold them all", blocks=runs(act.blocks))
            case Share() | Evict() | Unpublish():
                wrong = any(not self._findable[i] for i in act.blocks)
                told = say("found or lost blocks {blocks}, and not all had content", blocks=runs(act.blocks))
            case _:
                return None
        return say("In step {step} {name} {told}.", step=act.step, name=act.request, told=told) if wrong else None

    def _follow(self, act: AnyAct) -> None:
        match act:
            case Take():
                again = sum(self._used[i] for i in act.blocks)
                self.takings.append(Taking(act.step, act.request, act.blocks, again))
                self._own(act.blocks)
            case Share():
                self._own(act.blocks)
            case Publish() | Unpublish() | Evict():
                for i in act.blocks:
                    self._findable[i] = isinstance(act, Publish)
            case Return():
                for i in act.blocks:
                    self._owners[i] -= 1
                for i in act.fenced:
                    self._fences[i] = act.fence
            case Commit():
                self._fences = [0 if fence == act.launched else fence for fence in self._fences]
            case _:
                pass

    def _own(self, blocks: tuple[int, ...]) -> None:
        for i in blocks:
            self._owners[i] += 1
            self._used[i] = True

    def _reclaimable(self) -> list[int]:
        return [i for i in range(1, len(self._owners)) if not self._owners[i] and not self._fences[i]]


def _parting(policy: str, acts: tuple[AnyAct, ...], total: int) -> Parting | None:
    """None if ``policy`` explains every taking."""
    candidate, number = Candidate(policy, total), 0
    for act in acts:
        if not isinstance(act, Take):
            candidate.follow(act)
            continue
        expected = candidate.choose(len(act.blocks))
        if expected != act.blocks:
            return Parting(number, expected)
        number += 1
    return None


def _contradiction(said: str, taking: Taking, parting: Parting, partings: dict[str, Parting | None]) -> str:
    return say(
        "The engine calls its policy {said}, which would give {name} blocks {expected} in step {step}, and it gave "
        "{blocks}. What explains all that was seen: {explains}.",
        said=said,
        name=taking.request,
        expected=runs(parting.expected),
        step=taking.step,
        blocks=runs(taking.blocks),
        explains=_names(partings),
    )


def _names(partings: dict[str, Parting | None]) -> str:
    """The policies that explain everything."""
    explains = [name for name, parting in partings.items() if parting is None]
    return names_of(explains) if explains else say("none of the known policies")


def _proved(run: Recording, said: str, takings: list[Taking], partings: dict[str, Parting | None]) -> Finding:
    explains = [name for name, parting in partings.items() if parting is None]
    again = sum(taking.again for taking in takings)
    evidence: dict[str, Any] = {
        "order": explains[0] if len(explains) == 1 else "undecided" if explains else "unknown",
        "explained_by": explains,
        "said": said,
        "parted": {
            name: {"taking": parting.number, "expected": list(parting.expected)}
            for name, parting in partings.items()
            if parting
        },
        "taken": [
            {"step": taking.step, "request": taking.request, "blocks": list(taking.blocks), "again": taking.again}
            for taking in takings
        ],
    }
    facts = [
        (say("the engine says"), said),
        (say("explained by"), _names(partings)),
        (
            say("watched"),
            say("{n:,} times blocks were taken, {again:,} of them used before", n=len(takings), again=again),
        ),
        (say("whatever the order"), say("every block taken was reclaimable, and none was taken twice at once")),
    ]
    return Finding(
        Verdict.PROVED,
        _reason(explains),
        say("{n:,} blocks used again, {usable:,} usable blocks", n=again, usable=run.usable),
        tuple(facts),
        evidence,
        tables=(_table(takings, partings),),
    )


def _reason(explains: list[str]) -> str:
    if not explains:
        return say("Only reclaimable blocks were taken, in an order that no known policy explains.")
    if len(explains) == 1:
        return say("Blocks were used again in the order of {policy}, and of no other known policy.", policy=explains[0])
    return say("Blocks were used again in an order that {policies} explain equally.", policies=names_of(explains))


def _table(takings: list[Taking], partings: dict[str, Parting | None]) -> Table:
    """The takings of used blocks, and where a policy parts from them, what it would have given."""
    rows = []
    for number, taking in enumerate(takings):
        parted = [f"{name}: {runs(p.expected)}" for name, p in partings.items() if p and p.number == number]
        if taking.again or parted:
            rows.append((f"{taking.step:,}", taking.request, runs(taking.blocks), ", ".join(parted) or "-"))
    return Table((say("step"), say("request"), say("took"), say("would have been")), tuple(rows))


REUSE_ORDER = Claim(
    "reuse-order",
    say("The order of re-use is known"),
    say("Which blocks are used again, and in which order, is watched and compared with every known policy."),
    (REUSE,),
    judge,
    also=(PRESSURE,),
)
