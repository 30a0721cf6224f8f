"""One round of a soak: a case played on a fresh engine, looked at after every action and every step."""

from __future__ import annotations

import enum
from contextlib import suppress

from msgspec import Struct

from pellucid.errors import MoveRefused
from pellucid.kv import acts
from pellucid.lab.bed import Bed, Received, Reference, agree
from pellucid.lab.load import LONGEST, Abort, Action, Add, Case, Move

PATIENCE = 50 + 4 * LONGEST
"""Steps in which nobody ends or gets further than ever before; computing a request again takes up to `LONGEST`."""


class Kind(enum.StrEnum):
    """What can be wrong."""

    INVARIANT = "invariant"  # one of the fourteen is broken
    ISOLATION = "isolation"  # requests of different salts hold one block
    OUTPUT = "output"  # other tokens, or another end, than the request has alone
    BASELINE = "baseline"  # nobody is left, and not every block is reclaimable
    STUCK = "stuck"  # no progress
    LOST = "lost"  # the engine is done, and a request has not ended; or it has, and the engine counts it
    ERROR = "error"  # an exception


class Failure(Struct, frozen=True):
    """What went wrong first. ``code`` is the invariant or the type of the exception; equal failures share both.

    Like every error it is in English, whatever the language of the report: it is quoted and searched for.
    """

    kind: Kind
    code: str
    step: int
    message: str

    @property
    def title(self) -> str:
        return f"{self.kind} {self.code}".rstrip()

    def same(self, other: Failure | None) -> bool:
        return other is not None and (self.kind, self.code) == (other.kind, other.code)


class Tally(Struct):
    """What happened, counted from the journals. ``hit_blocks`` are the blocks that prefix hits shared.

    Of the ``compared`` outputs, ``close_calls`` differ by rounding (see `Reference.close_call`).
    """

    rounds: int = 0
    steps: int = 0
    requests: int = 0
    aborts: int = 0
    preemptions: int = 0
    hit_tokens: int = 0
    hit_blocks: int = 0
    evictions: int = 0
    moves: int = 0
    output_tokens: int = 0
    audits: int = 0
    compared: int = 0
    close_calls: int = 0

    def add(self, other: Tally) -> None:
        for name in self.__struct_fields__:
            setattr(self, name, getattr(self, name) + getattr(other, name))

    def count(self, act: acts.AnyAct) -> None:
        match act:
            case acts.Open():
                self.requests += 1
            case acts.Close():
                self.aborts += act.reason == "abort"
            case acts.Preempt():
                self.preemptions += 1
            case acts.Lookup():
                self.hit_tokens += act.hit
            case acts.Share():
                self.hit_blocks += len(act.blocks)
            case acts.Evict():
                self.evictions += len(act.blocks)
            case acts.Move():
                self.moves += 1
            case acts.Commit():
                self.output_tokens += len(act.requests)


class _Found(Exception):
    def __init__(self, kind: Kind, code: str, message: str) -> None:
        self.kind, self.code, self.message = kind, code, message


class Round:
    """Plays ``case`` once. Without a ``reference`` outputs are not compared."""

    def __init__(self, case: Case, bed: Bed, reference: Reference | None) -> None:
        self.case = case
        self.tally = Tally(rounds=1)
        self._reference = reference
        if reference is not None:
            reference.prepare(case)
        self._engine = bed(case.settings)
        self._auditor = self._engine.kv.auditor()
        self._live: dict[str, Add] = {}
        self._furthest: dict[str, int] = {}
        self._progress = 0  # the last step with any

    def play(self) -> Failure | None:
        """What went wrong, if anything. An engine that raises is wrong."""
        failure = None
        try:
            self._play()
        except _Found as found:
            failure = Failure(found.kind, found.code, self.tally.steps, found.message)
        except Exception as error:
            failure = Failure(Kind.ERROR, type(error).__name__, self.tally.steps, str(error))
        for act in self._engine.kv.journal:
            self.tally.count(act)
        self.tally.audits = self._auditor.checks
        return failure

    def _play(self) -> None:
        ahead = list(self.case.actions)[::-1]
        step = 0
        while ahead or self._engine.has_unfinished_requests():
            if not self._engine.has_unfinished_requests():
                step = max(step, ahead[-1].step)  # an idle engine need not be stepped
            while ahead and ahead[-1].step <= step:
                self._act(ahead.pop())
            self.tally.steps += 1
            for received in self._engine.step():
                self._receive(received)
            self._audit()
            self._watch()
            step += 1
        if self._live:
            raise _Found(Kind.LOST, "", f"the engine is done, and {', '.join(self._live)} never ended.")
        self._check_baseline()

    def _act(self, action: Action) -> None:
        if isinstance(action, Move):
            self._move(action)
        elif isinstance(action, Add) and action.name not in self._live:
            self._engine.add(action)
            self._live[action.name] = action
        elif isinstance(action, Abort) and action.name in self._live:
            received = self._engine.abort(action.name)
            self._end(received)
        else:
            return
        self._progress = self.tally.steps
        self._audit()

    def _move(self, action: Move) -> None:
        pool = self._engine.kv.snapshot().pool
        held = [block for block, owners in enumerate(pool.owners) if owners]
        if held and pool.reuse_order:
            with suppress(MoveRefused):
                to = pool.reuse_order[action.to % len(pool.reuse_order)]
                self._engine.move(held[action.block % len(held)], to)

    def _receive(self, received: Received) -> None:
        if received.name not in self._live:
            raise _Found(Kind.OUTPUT, "stranger", f"{received.name} gets tokens and does not live.")
        if received.reason is not None:
            self._end(received)
            self._progress = self.tally.steps

    def _end(self, received: Received) -> None:
        request = self._live.pop(received.name)
        self._furthest.pop(received.name, None)
        if self._reference is None or (received.reason == "abort" and not received.tokens):
            return
        self.tally.compared += 1
        alone = self._reference(request)
        if agree(received, alone):
            return
        if not self._reference.close_call(request, received):
            message = (
                f"{received.name} ends by {received.reason} with {list(received.tokens)}; "
                f"alone it ends by {alone.reason} with {list(alone.tokens)}."
            )
            raise _Found(Kind.OUTPUT, "", message)
        self.tally.close_calls += 1

    def _audit(self) -> None:
        for violation in self._auditor.check():
            raise _Found(Kind.INVARIANT, violation.invariant, str(violation))
        self._check_isolation()

    def _check_isolation(self) -> None:
        """By the names and salts that were asked for, whatever the engine has made of them."""
        holders: dict[int, str] = {}
        for view in self._engine.kv.snapshot().requests:
            if view.name not in self._live:
                raise _Found(Kind.LOST, "stranger", f"{view.name} has ended, and the engine still counts it.")
            for block in view.blocks:
                other = holders.setdefault(block, view.name)
                if self._live[other].salt != self._live[view.name].salt:
                    message = f"{other} and {view.name} of another salt both hold block {block}."
                    raise _Found(Kind.ISOLATION, "", message)

    def _watch(self) -> None:
        for view in self._engine.kv.snapshot().requests:
            if view.slots > self._furthest.get(view.name, 0):
                self._furthest[view.name] = view.slots
                self._progress = self.tally.steps
        if self.tally.steps - self._progress >= PATIENCE:
            waiting = ", ".join(self._live) or "none"
            raise _Found(Kind.STUCK, "", f"no request ended or got further in {PATIENCE} steps; alive: {waiting}.")

    def _check_baseline(self) -> None:
        snapshot = self._engine.kv.snapshot()
        pool = snapshot.pool
        if snapshot.requests or snapshot.launched or pool.reclaimable != pool.usable or pool.held or pool.fenced:
            raise _Found(
                Kind.BASELINE,
                "",
                f"nobody is left, and of {pool.usable} usable blocks {pool.reclaimable} are reclaimable, "
                f"{pool.held} held, {pool.fenced} fenced; {len(snapshot.launched)} steps are under way.",
            )
