"""What a soak runs on: engines of one model under any settings, and what each request comes to when it is alone."""

from __future__ import annotations

from typing import NamedTuple, Protocol

from msgspec.structs import replace

from pellucid.engine.config import SchedulerConfig
from pellucid.engine.core import EngineCore
from pellucid.engine.scheduler import Scheduler
from pellucid.engine.sequence import Sequence
from pellucid.errors import InvariantViolation
from pellucid.kv.invariants import Violation
from pellucid.kv.journal import Journal
from pellucid.kv.manager import KVManager
from pellucid.kv.reader import KVReader
from pellucid.kv.snapshot import Snapshot
from pellucid.lab.echo import EOS, VOCAB_SIZE, Echo
from pellucid.lab.load import LONGEST, Add, Case, Settings
from pellucid.plan import Request

NO_MODEL = "none"
ALONE = Settings(num_gpu_blocks_override=1 + 4 * LONGEST // 16, enable_prefix_caching=False)
MEMORISED = 100_000
JOURNAL = 50_000


class Received(NamedTuple):
    """All the output tokens a request has so far, and why it ended (None: it goes on)."""

    name: str
    tokens: tuple[int, ...]
    reason: str | None


class Checker(Protocol):
    """Looks at every invariant that can be seen, each time it is asked; ``checks`` counts how often."""

    checks: int

    def check(self) -> list[Violation]: ...


class Books(Protocol):
    """What an engine shows of its blocks."""

    @property
    def journal(self) -> Journal: ...

    def snapshot(self) -> Snapshot: ...

    def auditor(self) -> Checker: ...


class Engine(Protocol):
    """One engine under a soak."""

    @property
    def kv(self) -> Books: ...

    def add(self, request: Add) -> None: ...

    def abort(self, name: str) -> Received: ...

    def move(self, block: int, to: int) -> None:
        """Move a live block. Raises `MoveRefused`."""

    def step(self) -> list[Received]:
        """One step; whoever got a token."""

    def has_unfinished_requests(self) -> bool: ...


class Bed(Protocol):
    """Makes engines of one model."""

    def __call__(self, settings: Settings) -> Engine: ...

    def nudged(self, token: int) -> Bed | None:
        """The same, but ``token`` is a little likelier everywhere, by more than rounding can come to.

        None if nothing is rounded here.
        """


class EchoEngine:
    """The engine without a model (see `Echo`): quick, and nothing but Python."""

    def __init__(self, settings: Settings) -> None:
        kv = KVManager(
            settings.num_gpu_blocks_override,
            settings.block_size,
            enable_prefix_caching=settings.enable_prefix_caching,
            reuse_policy=settings.reuse_policy,
            shuffle_blocks=settings.shuffle_blocks,
            journal_capacity=None,
        )
        config = SchedulerConfig(
            max_model_len=kv.pool.usable * kv.block_size,
            max_num_seqs=settings.max_num_seqs,
            max_num_batched_tokens=settings.max_num_batched_tokens,
            scheduling_policy=settings.scheduling_policy,
            watermark=settings.watermark,
            eos_token_ids=(EOS,),
            vocab_size=VOCAB_SIZE,
        )
        executor = Echo(settings.block_size)
        self._core = EngineCore(Scheduler(kv, config), executor, asynchronous=settings.async_scheduling)
        self.kv = KVReader(kv)

    def add(self, request: Add) -> None:
        self._core.add(
            Request(
                name=request.name,
                prompt=request.prompt,
                sampling=request.sampling,
                priority=request.priority,
                salt=request.salt,
            )
        )

    def abort(self, name: str) -> Received:
        return self._received(self._core.abort(name))

    def move(self, block: int, to: int) -> None:
        self._core.move(block, to)

    def step(self) -> list[Received]:
        return [self._received(progress.sequence) for progress in self._core.step()]

    def has_unfinished_requests(self) -> bool:
        return self._core.has_unfinished_requests()

    def _received(self, sequence: Sequence) -> Received:
        return Received(sequence.name, tuple(sequence.output), sequence.finish_reason)


class EchoBed:
    """Engines without a model. Hashes are not rounded."""

    def __call__(self, settings: Settings) -> EchoEngine:
        return EchoEngine(settings)

    def nudged(self, token: int) -> None:
        return None


def bed(model: str) -> Bed:
    """Engines of ``model``; all of them share its weights. "none" is the engine without a model.

    Raises what `pellucid.LLM` raises for a model that cannot be had.
    """
    if model == NO_MODEL:
        return EchoBed()
    from pellucid.lab.model_bed import ModelBed

    return ModelBed(model)


class Reference:
    """What a request must come to: alone in a large pool, prefix caching off, one step at a time.

    One engine answers all; answers are remembered, as name, arrival, salt and priority must not matter.
    """

    def __init__(self, bed: Bed) -> None:
        self._bed = bed
        self._engine: Engine | None = None
        self._answers: dict[Add, Received] = {}

    def __call__(self, request: Add) -> Received:
        plain = replace(request, step=0, name="alone", priority=0, salt=None, bypass=False)
        if plain not in self._answers:
            if len(self._answers) >= MEMORISED:
                self._answers.clear()
            self._answers[plain] = self._run(plain)
        return self._answers[plain]

    def prepare(self, case: Case) -> None:
        """Called before ``case`` is played, by whom an answer must be found out while no round is under way."""

    def close_call(self, request: Add, received: Received) -> bool:
        """Whether rounding alone explains ``received``: two tokens were so close that batching may decide.

        A model that likes the first differing token a little more must give the same to the end.
        """
        pairs = zip(self(request).tokens, received.tokens, strict=False)
        token = next((theirs for ours, theirs in pairs if ours != theirs), None)
        nudged = None if token is None else self._bed.nudged(token)
        return nudged is not None and agree(received, Reference(nudged)(request))

    def _run(self, request: Add) -> Received:
        engine, self._engine = self._engine or self._bed(ALONE), None  # kept only if it comes through
        engine.add(request)
        received = Received(request.name, (), None)
        for _ in range(LONGEST):
            if received.reason is not None:
                break
            received = next(iter(engine.step()), received)
        if received.reason is None:
            raise InvariantViolation(f"alone and with all the room there is, {request} does not end.")
        if len(engine.kv.journal) < JOURNAL:  # a fresh one then, as journals are kept whole
            self._engine = engine
        return received


def agree(received: Received, answer: Received) -> bool:
    """The same tokens and the same end; from an aborted request its part of the answer."""
    if received.reason == "abort":
        return received.tokens == answer.tokens[: len(received.tokens)]
    return received[1:] == answer[1:]
