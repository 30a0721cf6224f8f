"""Claim: a request that is pre-empted and computed again answers as if nothing had happened."""

from __future__ import annotations

from collections import Counter
from typing import Any, NamedTuple

from pellucid.kv.acts import Admit, Launch, Preempt, Return, Share
from pellucid.kv.table import RequestStatus
from pellucid.lab.claim import Claim, Recordings
from pellucid.lab.claims.same_output import different_output
from pellucid.lab.plans import not_in_full
from pellucid.lab.proof import Exhibit, Finding, Table, Verdict, not_observable, refuted
from pellucid.lab.recording import Frame, Recording
from pellucid.lab.scenarios.pressure import PRESSURE, ROOMY
from pellucid.lab.turns import FIRST_COME, out_of_turn
from pellucid.lang import say
from pellucid.view import runs


class Loss(NamedTuple):
    """``name`` was pre-empted for ``by`` in ``step``: it gave up ``blocks``, and ``tokens`` had been computed.

    It came back in step ``resumed`` (None if never) and found ``found`` tokens in the cache, in ``kept`` blocks.
    Steps are counted from the beginning of the recording.
    """

    name: str
    by: str
    step: int
    blocks: tuple[int, ...]
    tokens: int
    resumed: int | None = None
    found: int = 0
    kept: tuple[int, ...] = ()

    @property
    def recomputed(self) -> int:
        return max(0, self.tokens - self.found) if self.resumed is not None else 0


def losses(run: Recording) -> list[Loss]:
    """Every pre-emption, with what came before and after it."""
    first = run.frames[0].snapshot.step
    told: list[Loss] = []
    pending: dict[str, int] = {}  # who is waiting to come back, and the place of its loss
    computed: Counter[str] = Counter()
    returned: dict[str, tuple[int, ...]] = {}
    shared: dict[str, tuple[int, ...]] = {}
    for act in run.acts or ():
        match act:
            case Share():
                shared[act.request] = act.blocks
            case Admit():
                computed[act.request] = act.computed
                if (place := pending.pop(act.request, None)) is not None:
                    kept = shared.get(act.request, ()) if act.computed else ()
                    told[place] = told[place]._replace(resumed=act.step - first, found=act.computed, kept=kept)
            case Launch():
                computed.update(dict(zip(act.requests, act.counts, strict=True)))
            case Return():
                returned[act.request] = act.blocks
            case Preempt():
                pending[act.request] = len(told)
                lost = returned.get(act.request, ())
                told.append(Loss(act.request, act.by, act.step - first, lost, computed[act.request]))
            case _:
                pass
    return told


def judge(recordings: Recordings) -> Finding:
    """The pre-emptions are counted in the journal and in the tables; the answers stand beside those with room."""
    run, roomy = recordings[PRESSURE.name], recordings[ROOMY.name]
    if run.acts is None or roomy.acts is None:
        return not_observable(say("This engine keeps no journal, so its pre-emptions cannot be followed."))
    told = losses(run)
    if wrong := _unsound(run):
        return refuted(wrong)
    if not told:
        return not_observable(say("{n:,} blocks were enough: nobody was pre-empted.", n=run.usable))
    if losses(roomy):
        return not_observable(say("Somebody was pre-empted with room as well: there is nothing to compare with."))
    if run.about.scheduling_policy == FIRST_COME and (wrong := out_of_turn(run.acts)):
        return refuted(wrong)
    if other := different_output(run, roomy, run.requests, say("with room")):
        return other
    for name in run.requests:
        if wrong := not_in_full(run, name):
            return refuted(wrong)
    return _proved(run, told)


def _unsound(run: Recording) -> str | None:
    """A pre-empted request holds nothing, and counts as many pre-emptions as the journal tells."""
    counted: Counter[str] = Counter()
    acts, first, read = run.acts or (), run.frames[0].snapshot.acts, 0
    for frame in run.frames:
        until = frame.snapshot.acts - first
        counted.update(act.request for act in acts[read:until] if isinstance(act, Preempt))
        read = until
        for view in frame.snapshot.requests:
            if view.status is RequestStatus.PREEMPTED and view.blocks:
                return say(
                    "After step {step} {name} is pre-empted and holds blocks {blocks}.",
                    step=frame.step,
                    name=view.name,
                    blocks=runs(view.blocks),
                )
            if view.preemptions != counted[view.name]:
                return say(
                    "After step {step} {name} counts {n} pre-emptions, and the journal tells {told}.",
                    step=frame.step,
                    name=view.name,
                    n=view.preemptions,
                    told=counted[view.name],
                )
    return None


def _proved(run: Recording, told: list[Loss]) -> Finding:
    recomputed = sum(loss.recomputed for loss in told)
    lost, kept = sum(len(loss.blocks) for loss in told), sum(len(loss.kept) for loss in told)
    outputs = {name: len(run.outputs[name].tokens) for name in run.requests}
    evidence: dict[str, Any] = {
        "preemptions": [
            {**loss._asdict(), "blocks": list(loss.blocks), "kept": list(loss.kept), "recomputed": loss.recomputed}
            for loss in told
        ],
        "blocks_lost": lost,
        "blocks_found_again": kept,
        "tokens_recomputed": recomputed,
        "output_tokens": outputs,
    }
    facts = (
        (say("pre-emptions"), say("{n}, and {lost} blocks lost by them", n=len(told), lost=lost)),
        (say("found again"), say("{n} blocks, still in the cache when their request came back", n=kept)),
        (say("computed again"), say("{n:,} tokens", n=recomputed)),
        (say("in turn"), _in_turn(run)),
        (say("the answers"), say("{n:,} output tokens, the same as with room", n=sum(outputs.values()))),
    )
    return Finding(
        Verdict.PROVED,
        say(
            "{tokens:,} tokens were computed again after {n} pre-emption(s), and no answer changed.",
            n=len(told),
            tokens=recomputed,
        ),
        say(
            "{steps:,} steps, {usable:,} usable blocks, {requests} requests, all at once and each alone",
            steps=run.steps,
            usable=run.usable,
            requests=len(run.requests),
        ),
        facts,
        evidence,
        _exhibits(run, told[0]),
        (_table(told),),
    )


def _in_turn(run: Recording) -> str:
    policy = run.about.scheduling_policy
    if policy == FIRST_COME:
        return say("the last to be admitted gave way, and was back before all who waited")
    if policy is None:
        return say("this engine does not say who gives way")
    return say("not looked at: this engine schedules by {policy}", policy=policy)


def _table(told: list[Loss]) -> Table:
    header = (
        say("pre-empted"),
        say("in step"),
        say("for"),
        say("gave up"),
        say("back in"),
        say("found"),
        say("computed again"),
    )
    rows = [
        (
            loss.name,
            f"{loss.step:,}",
            loss.by,
            runs(loss.blocks),
            f"{loss.resumed:,}" if loss.resumed is not None else "-",
            runs(loss.kept),
            f"{loss.recomputed:,}",
        )
        for loss in told
    ]
    return Table(header, tuple(rows))


def _exhibits(run: Recording, loss: Loss) -> tuple[Exhibit, ...]:
    """Before the first pre-emption, after it, and its victim back."""

    def live(frame: Frame) -> tuple[int, int]:
        view = frame.live(loss.name)
        return (view.preemptions, len(view.blocks)) if view else (-1, 0)

    gone = next((i for i, frame in enumerate(run.frames) if live(frame)[0] > 0), None)
    if gone is None:
        return ()
    back = next((frame for frame in run.frames[gone:] if live(frame)[1]), None)
    before, after = run.frames[gone - 1], run.frames[gone]
    shown = [
        Exhibit(say("Step {step}: the pool is full", step=before.step), before.snapshot),
        Exhibit(say("Step {step}: {name} is pre-empted", step=after.step, name=loss.name), after.snapshot),
    ]
    if back and back is not after:
        shown.append(Exhibit(say("Step {step}: {name} is back", step=back.step, name=loss.name), back.snapshot))
    return tuple(shown)


PREEMPTION = Claim(
    "preemption",
    say("Pre-emption changes nothing"),
    say(
        "A request that loses its blocks to another, waits and is computed again gives the same tokens; "
        "where the first to come is the first to be served, it is the last that gives way and the first to be back."
    ),
    (PRESSURE, ROOMY),
    judge,
)
