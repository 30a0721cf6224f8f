"""A real vLLM under a soak."""

from __future__ import annotations

from typing import Any, NamedTuple

from msgspec.structs import asdict, replace

from pellucid.attach import observe
from pellucid.errors import InvariantViolation
from pellucid.lab.bed import MEMORISED, Received, Reference
from pellucid.lab.load import STOP_IDS, Add, Case, Settings
from pellucid.lab.vllm_laboratory import VllmLaboratory

CLOSE = 1e-3
"""Log-probabilities of one and the same token differ by some 1e-5 between batches, as the order of rounding does."""

PATIENCE = 2_000
"""Steps that a request may take alone: a long prompt in the smallest chunks."""


class VllmEngine:
    """One round on ``engine``, an idle vLLM ``LLMEngine``, observed from now on."""

    def __init__(self, engine: Any) -> None:
        from vllm import SamplingParams

        self._engine = engine
        self._sampling = SamplingParams
        self._received: dict[str, tuple[int, ...]] = {}
        self.kv = observe(engine, journal_capacity=None)

    def add(self, request: Add, logprobs: int | None = None) -> None:
        prompt: dict[str, Any] = {"prompt_token_ids": list(request.prompt)}
        if request.salt is not None:
            prompt["cache_salt"] = request.salt
        self._received[request.name] = ()
        sampling = _sampling(self._sampling, request, logprobs)
        self._engine.add_request(request.name, prompt, sampling, priority=request.priority)

    def abort(self, name: str) -> Received:
        self._engine.abort_request([name])
        return Received(name, self._received.pop(name), "abort")

    def move(self, block: int, to: int) -> None:
        raise NotImplementedError  # no load for a vLLM moves anything

    def step(self) -> list[Received]:
        return [self._told(output) for output in self._engine.step()]

    def has_unfinished_requests(self) -> bool:
        under_way = getattr(self._engine.engine_core.engine_core, "batch_queue", None)
        return bool(self._engine.has_unfinished_requests() or under_way)

    def alone(self, request: Add) -> Answer:
        """What ``request`` comes to on the idle engine with an empty prefix cache."""
        self._engine.reset_prefix_cache()
        self.add(request, logprobs=2)
        for _ in range(PATIENCE):
            for output in self._engine.step():
                if output.finished:
                    rivals = tuple(map(_rival, output.outputs[0].logprobs or ()))
                    return Answer(self._told(output), rivals)
        raise InvariantViolation(f"alone and with all the room there is, {request} does not end.")

    def _told(self, output: Any) -> Received:
        completion = output.outputs[0]
        tokens = self._received[output.request_id] = tuple(completion.token_ids)
        return Received(output.request_id, tokens, completion.finish_reason)


class Answer(NamedTuple):
    """What a request comes to, and for each token the next likely one and by how much it is less likely (log)."""

    received: Received
    rivals: tuple[tuple[int, float], ...]


class VllmBed:
    """The engines of ``laboratory``. One plays rounds as long as they have its settings, then the next is made."""

    def __init__(self, laboratory: VllmLaboratory) -> None:
        self._laboratory = laboratory
        self._settings: Settings | None = None
        self._engine: Any = None
        self._round: VllmEngine | None = None

    def __call__(self, settings: Settings) -> VllmEngine:
        fresh = self._settings != settings or self._is_busy()
        if self._round is not None:
            self._round.kv.close()
        if fresh:
            self._round = self._engine = None  # before there is another, its memory is given back
            self._engine = self._laboratory.engine(**asdict(settings))
            self._settings = settings
        self._round = VllmEngine(self._engine)
        return self._round

    def nudged(self, token: int) -> None:
        return None

    def _is_busy(self) -> bool:
        """A round that failed leaves requests behind."""
        return self._round is not None and self._round.has_unfinished_requests()


class VllmReference(Reference):
    """What requests come to on the same vLLM, alone: asked of it before each round, while it is idle."""

    def __init__(self, bed: VllmBed) -> None:
        self._vllms = bed
        self._known: dict[Add, Answer] = {}

    def prepare(self, case: Case) -> None:
        engine = None
        for request in (action for action in case.actions if isinstance(action, Add)):
            plain = _plain(request)
            if plain not in self._known:
                if len(self._known) >= MEMORISED:
                    self._known.clear()
                engine = engine or self._vllms(case.settings)
                self._known[plain] = engine.alone(plain)

    def __call__(self, request: Add) -> Received:
        return self._known[_plain(request)].received

    def close_call(self, request: Add, received: Received) -> bool:
        """Whether the first other token is one that was as likely but for rounding. What follows it is not compared."""
        answer = self._known[_plain(request)]
        pairs = zip(answer.received.tokens, received.tokens, answer.rivals, strict=False)
        first = next(((theirs, rival) for ours, theirs, rival in pairs if ours != theirs), None)
        return first is not None and first[0] == first[1][0] and first[1][1] < CLOSE


def _plain(request: Add) -> Add:
    return replace(request, step=0, name="alone", priority=0, salt=None, bypass=False)


def _rival(logprobs: Any) -> tuple[int, float]:
    """Of the two likeliest tokens the second, and how far it is behind."""
    (_, best), (token, other) = sorted(((t, each.logprob) for t, each in logprobs.items()), key=lambda p: -p[1])[:2]
    return token, best - other


def _sampling(kind: Any, request: Add, logprobs: int | None) -> Any:
    sampling = kind(
        temperature=0,
        max_tokens=request.max_tokens,
        min_tokens=request.min_tokens,
        stop_token_ids=list(range(0, STOP_IDS, request.stop_every)) if request.stop_every else [],
        ignore_eos=request.ignore_eos,
        detokenize=False,
        logprobs=logprobs,
    )
    if request.bypass and hasattr(sampling, "skip_reading_prefix_cache"):  # not in old versions
        sampling.skip_reading_prefix_cache = True
    return sampling
