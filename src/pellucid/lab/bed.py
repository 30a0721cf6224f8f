"""What a soak runs on: engines of one model under any settings, and what each request comes to when it is alone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol

from msgspec.structs import replace

from pellucid.engine.config import SchedulerConfig
from pellucid.engine.core import EngineCore
from pellucid.engine.scheduler import Scheduler
from pellucid.engine.sequence import Sequence
from pellucid.errors import ConfigError, InvariantViolation
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


def bed(model: str, options: Mapping[str, Any] | None = None) -> Bed:
    """Engines of ``model``; all of them share its weights. "none" is the engine without a model.

    ``options`` are those of `pellucid.LLM` that the settings of a load leave open; what is not given there of the
    type of numbers is float32. Raises what `LLM` raises for a model or an option that cannot be had.
    """
    if model == NO_MODEL:
        if options:
            raise ConfigError(f"{', '.join(options)}: the engine without a model computes nothing; leave it out.")
        return EchoBed()
    from pellucid.lab.model_bed import ModelBed

    return ModelBed(model, options or {})


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
        """Whether rounding alone explains ``received``: wherever it differs, two tokens were so close that it may.

        A model that likes the differing token a little more must give it there. What comes after is compared with
        what the request comes to that has what came before in its prompt.
        """
        answer = self(request)
        while not agree(received, answer):
            pairs = zip(answer.tokens, received.tokens, strict=False)
            same = next((at for at, (ours, theirs) in enumerate(pairs) if ours != theirs), None)
            nudged = None if same is None else self._bed.nudged(received.tokens[same])
            if same is None or nudged is None:
                return False
            request, received = _beyond(request, received, same)
            other = Reference(nudged)(request)
            if other.tokens[:1] != received.tokens[:1]:
                return False
            if len(received.tokens) == 1:
                return agree(received, other)
            request, received = _beyond(request, received, 1)
            answer = self(request)
        return True

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


def _beyond(request: Add, received: Received, count: int) -> tuple[Add, Received]:
    """The request that has the first ``count`` output tokens in its prompt, and what is left of ``received``."""
    rest = replace(
        request,
        prompt=(*request.prompt, *received.tokens[:count]),
        max_tokens=request.max_tokens - count,
        min_tokens=max(0, request.min_tokens - count),
    )
    return rest, received._replace(tokens=received.tokens[count:])


def agree(received: Received, answer: Received) -> bool:
    """The same tokens and the same end; from an aborted request its part of the answer."""
    if received.reason == "abort":
        return received.tokens == answer.tokens[: len(received.tokens)]
    return received[1:] == answer[1:]
