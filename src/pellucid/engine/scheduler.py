"""The scheduler: continuous batching under one token budget.

There is no prefill phase and no decode phase, only requests whose computed tokens are catching up
with their tokens (the formulation of vLLM's V1 scheduler). It knows no model and no runner: plans
go out, results come in, and between them the KV manager keeps the blocks.
"""

from __future__ import annotations

from collections import deque
from functools import cached_property
from itertools import compress

from msgspec import Struct

from pellucid.engine.config import SchedulerConfig
from pellucid.engine.draft import Draft
from pellucid.engine.queue import waiting_queue
from pellucid.engine.sequence import Sequence
from pellucid.errors import InvariantViolation, RequestError, UnknownRequest
from pellucid.kv.manager import KVManager, Writing
from pellucid.kv.table import RequestStatus
from pellucid.plan.request import Request
from pellucid.plan.step import StepPlan, StepResult


class Progress(Struct, frozen=True, gc=False):
    """One request got one token; ``last`` says whether the request has ended with it."""

    sequence: Sequence
    token: int
    last: bool


class Launched:
    """A plan whose result has not come yet, with the sequences behind its rows."""

    def __init__(self, plan: StepPlan, sequences: list[Sequence]) -> None:
        self.plan = plan
        self.sequences = sequences

    @cached_property
    def rows(self) -> dict[int, int]:
        """Rows by handle, for those who leave while the step runs: in most steps nobody asks."""
        return {handle: row for row, handle in enumerate(self.plan.handles)}


class Scheduler:
    """Decides who computes what, step by step, over one KV manager.

    `schedule` may be called again before the result of the last plan is committed (asynchronous
    scheduling); results are committed in the order of their plans.
    """

    def __init__(self, kv: KVManager, config: SchedulerConfig) -> None:
        self.kv = kv
        self.config = config
        self.waiting = waiting_queue(config.scheduling_policy)
        self.running: list[Sequence] = []
        self.launched: deque[Launched] = deque()
        self._live: dict[str, Sequence] = {}
        self._handles = 0
        self._released: list[int] = []
        self._moves: list[tuple[int, int]] = []
        self._spare = int(config.watermark * len(kv.pool.blocks))

    # -- requests come and go ----------------------------------------------------------------------

    def add(self, request: Request) -> Sequence:
        """Queue a request.

        Raises `RequestError`, before anything is allocated: a name that is no printable string, a
        priority that is no integer, an empty prompt, one of ``max_model_len`` tokens or more, a token id
        that is no integer or outside the vocabulary, a request that can never fit the pool, or
        (`DuplicateRequest`) the name of a live request.
        """
        self._check_name_and_priority(request)
        limit = self._limit(request)
        self._check_tokens(request)
        self._check_fit(request, limit)
        tokens = list(request.prompt)
        table = self.kv.open(
            request.name,
            tokens,
            salt=request.salt,
            adapter=request.adapter,
            skip_lookup=request.sampling.skip_reading_prefix_cache,
        )
        self._handles += 1
        sequence = Sequence(request, self._handles, tokens, table, limit, self.config.eos_token_ids)
        self._live[request.name] = sequence
        self.waiting.add(sequence)
        return sequence

    def abort(self, name: str) -> Sequence:
        """End the live request of exactly this name now, whatever it is doing.

        Raises `UnknownRequest`, or `FinishedRequest` for one that has ended by itself.
        """
        sequence = self._live.get(name)
        if sequence is None:
            self.kv.table(name)  # tells finished from unknown
            raise UnknownRequest(f"no live request is named {name!r}.")
        if sequence.table.status is RequestStatus.RUNNING:
            self.running.remove(sequence)
        else:
            self.waiting.remove(sequence)
        self._end(sequence, "abort")
        return sequence

    def has_unfinished_requests(self) -> bool:
        """Whether anything waits, runs, or is still under way in a launched step."""
        return bool(self._live or self.launched)

    def move(self, block: int, to: int) -> None:
        """Move the held ``block`` to the reclaimable block ``to``; the next plan tells the runner first of all.

        Raises `MoveRefused` (see `KVManager.move`).
        """
        writing = {sequence.name: self._writing(sequence) for sequence in self.running}
        self.kv.move(block, to, {name: what for name, what in writing.items() if what is not None})
        self._moves.append((block, to))

    # -- a step ------------------------------------------------------------------------------------

    def schedule(self) -> StepPlan:
        """Plan one step: running requests first, then waiting ones from the head of the queue."""
        draft = Draft(self.kv.begin_step(), self.config.max_num_batched_tokens)
        self._schedule_running(draft)
        if not draft.pressed:
            self._schedule_waiting(draft)
        if not draft.sequences:
            return StepPlan(draft.step, (), (), (), (), (), (), (), ())
        plan = draft.plan(self._released, self._moves)
        self._released = []
        self._moves = []
        self.launched.append(Launched(plan, draft.sequences))
        self.kv.launch([sequence.name for sequence in draft.sequences], plan.counts)
        return plan

    def commit(self, result: StepResult) -> list[Progress]:
        """Take the oldest launched plan's result: append its tokens, end what ends, free its blocks.

        Raises `InvariantViolation` if the result belongs to another plan.
        """
        launched = self.launched.popleft()
        plan = launched.plan
        if plan.step != result.step or sum(plan.samples) != len(result.tokens):
            raise InvariantViolation(
                f"result of step {result.step} with {len(result.tokens)} tokens does not answer the plan of "
                f"step {plan.step} for {sum(plan.samples)}."
            )
        live = [
            (sequence, token)
            for sequence, token in zip(compress(launched.sequences, plan.samples), result.tokens, strict=True)
            if sequence.finish_reason is None  # else it ended (aborted, or stopped a step ago) while this step ran
        ]
        self.kv.commit(plan.step, [sequence.name for sequence, _ in live])
        before = len(self._live)
        progress = [Progress(sequence, token, self._accept(sequence, token)) for sequence, token in live]
        if len(self._live) < before:
            self.running = [sequence for sequence in self.running if sequence.finish_reason is None]
        return progress

    def _accept(self, sequence: Sequence, token: int) -> bool:
        """Give ``sequence`` its token; True if it has ended with it and returned its blocks."""
        if sequence.accept(token):
            self._retire(sequence)
            return True
        table = sequence.table
        if table.slots >= table.publish_at:
            self.kv.publish(table)
        return False

    def _schedule_running(self, draft: Draft) -> None:
        row, running, extend = 0, self.running, self.kv.extend
        while row < len(running) and draft.budget > 0:
            sequence = running[row]
            table = sequence.table
            start = table.slots
            if sequence.horizon >= sequence.limit:  # the token that ends it is already under way
                row += 1
                continue
            count = sequence.horizon - start
            if count > draft.budget:
                count = draft.budget
            blocks = extend(table, start + count)
            while blocks is None and not self.kv.fenced_would_do(table, start + count):
                victim = self._victim()
                row -= self._preempt(victim, sequence, row, draft)
                if victim is sequence:
                    return
                blocks = extend(table, start + count)
            if blocks is None:  # a further victim would gain nothing before the next commit gives enough
                draft.pressed = True
            else:
                draft.schedule(sequence, start, count, blocks)
            row += 1

    def _schedule_waiting(self, draft: Draft) -> None:
        while self.waiting and draft.budget > 0 and len(self.running) < self.config.max_num_seqs:
            sequence = self.waiting.head()
            if sequence.pending:  # pre-empted while a launched step makes its next token: wait for that
                return
            table = sequence.table
            hit = self.kv.match(table)
            spare = self._spare if self.running else 0
            if not self.kv.fits(hit, len(sequence.tokens), spare):
                return
            self.waiting.pop()
            count = min(len(sequence.tokens) - hit.tokens, draft.budget)
            blocks = self.kv.admit(table, hit, hit.tokens + count)
            self.running.append(sequence)
            draft.admit(sequence)
            draft.schedule(sequence, hit.tokens, count, blocks)

    def _victim(self) -> Sequence:
        if self.config.scheduling_policy == "priority":
            return max(self.running, key=lambda sequence: sequence.rank)
        return self.running[-1]

    def _preempt(self, victim: Sequence, by: Sequence, row: int, draft: Draft) -> bool:
        """Send ``victim`` back to the waiting queue; True if it stood before ``row`` of the running list."""
        position = self.running.index(victim)
        del self.running[position]
        draft.strike(victim)
        self.kv.preempt(victim.table, by.table, self._writing(victim))
        self._released.append(victim.handle)
        self.waiting.put_back(victim)
        draft.pressed = True
        return position < row

    # -- the end of a request ----------------------------------------------------------------------

    def _retire(self, sequence: Sequence) -> None:
        """A request ended by its own token: it may be running, or pre-empted while that token was made."""
        if sequence.table.status is not RequestStatus.RUNNING:
            self.waiting.remove(sequence)
        assert sequence.finish_reason is not None
        self._end(sequence, sequence.finish_reason)

    def _end(self, sequence: Sequence, reason: str) -> None:
        sequence.finish_reason = reason
        if sequence.table.status is RequestStatus.RUNNING:
            self._released.append(sequence.handle)
        self.kv.close(sequence.table, reason, self._writing(sequence))
        del self._live[sequence.name]

    def _writing(self, sequence: Sequence) -> Writing | None:
        """What launched steps still write to ``sequence``'s blocks, until the last of them is committed."""
        writing: Writing | None = None
        for launched in self.launched:
            plan = launched.plan
            if (row := launched.rows.get(sequence.handle)) is not None:
                start = min(writing.start, plan.starts[row]) if writing else plan.starts[row]
                writing = Writing(plan.step, start, plan.starts[row] + plan.counts[row])
        return writing

    # -- refusals ----------------------------------------------------------------------------------

    def _check_name_and_priority(self, request: Request) -> None:
        name = request.name
        if not (isinstance(name, str) and name and name.isprintable()):
            raise RequestError(f"a request's name must be a string of printable characters, not {name!r}.")
        if type(request.priority) is not int:
            raise RequestError(f"request {name!r} has priority {request.priority!r}; give it an integer.")

    def _limit(self, request: Request) -> int:
        """The most tokens, prompt and output, that the request can come to."""
        length, longest = len(request.prompt), self.config.max_model_len
        if not length:
            raise RequestError(f"request {request.name!r} has an empty prompt; give it at least 1 token.")
        if length >= longest:
            raise RequestError(
                f"request {request.name!r} has a prompt of {length} tokens, and max_model_len={longest} must hold it "
                f"and at least 1 new token; shorten it to {longest - 1} tokens or raise max_model_len."
            )
        most = request.sampling.max_tokens
        return longest if most is None else min(length + most, longest)

    def _check_tokens(self, request: Request) -> None:
        if not set(map(type, request.prompt)) <= {int}:
            wrong = next(token for token in request.prompt if type(token) is not int)
            raise RequestError(f"request {request.name!r} has {wrong!r} in its prompt; give integer token ids alone.")
        vocab = self.config.vocab_size
        top = 2**63 if vocab is None else vocab
        bounds = f"outside the model's vocabulary of {vocab}" if vocab else "which no model has"
        for what, tokens in (("prompt", request.prompt), ("stop_token_ids", request.sampling.stop_token_ids)):
            if tokens and (min(tokens) < 0 or max(tokens) >= top):
                wrong = next(token for token in tokens if not 0 <= token < top)
                raise RequestError(
                    f"request {request.name!r} has token id {wrong} in its {what}, {bounds} (ids 0 to {top - 1})."
                )

    def _check_fit(self, request: Request, limit: int) -> None:
        """The last token is sampled but never computed, so ``limit - 1`` tokens need slots."""
        needed, usable = self.kv.blocks_for(limit - 1), self.kv.pool.usable
        if needed > usable:
            room = usable * self.kv.block_size + 1 - len(request.prompt)
            advice = f"lower max_tokens to {room}" if room > 0 else "shorten the prompt"
            raise RequestError(
                f"request {request.name!r} can never fit: its prompt of {len(request.prompt)} and up to "
                f"{limit - len(request.prompt)} new tokens need {needed} blocks, and the pool has {usable} usable; "
                f"{advice} or give the pool more blocks."
            )
