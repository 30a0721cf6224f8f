"""``vllm.LLM``, ``vllm.LLMEngine`` and ``vllm.EngineArgs``: our engine behind vLLM's attributes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, ClassVar, Self

from pellucid.compat import sampling
from pellucid.compat.config import VllmConfig
from pellucid.compat.engine import Engine
from pellucid.compat.maker import EngineMaker
from pellucid.compat.output import RequestOutput, theirs
from pellucid.compat.sampling import SamplingParams
from pellucid.compat.scheduler import Scheduler
from pellucid.compat.tokenizer import Tokenizer
from pellucid.compat.uncovered import Part, refuse


class EngineCore(Part):
    _path = "llm.llm_engine.engine_core.engine_core"

    def __init__(self, engine: Engine) -> None:
        self.scheduler = Scheduler(engine)


class EngineCoreClient(Part):
    """What stands between engine and core when vLLM runs both in one process."""

    _path = "llm.llm_engine.engine_core"

    def __init__(self, engine: Engine) -> None:
        self.engine_core = EngineCore(engine)


class EngineArgs(Part):
    """The options of an engine, kept until it is made."""

    _path = "vllm.EngineArgs"

    def __init__(self, model: str, **options: Any) -> None:
        vars(self).update(options, model=model)


class LLMEngine(Part):
    """One step at a time. Requests are added under the caller's name and known inside by an internal id."""

    _path = "llm.llm_engine"
    _maker: ClassVar[EngineMaker]

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self.engine_core = EngineCoreClient(engine)
        self.vllm_config = VllmConfig(engine)
        self.model_config = self.vllm_config.model_config

    @classmethod
    def from_engine_args(cls, engine_args: EngineArgs, usage_context: object = None, **options: Any) -> Self:
        refuse("LLMEngine.from_engine_args", options)
        given = dict(vars(engine_args))
        return cls(cls._maker.make(given.pop("model"), given))

    def add_request(
        self,
        request_id: str,
        prompt: Any,
        params: SamplingParams,
        arrival_time: float | None = None,
        *,
        priority: int = 0,
        **options: Any,
    ) -> str:
        """Queue a request; returns its internal id, as vLLM does from 0.17 on."""
        refuse("LLMEngine.add_request", options)
        self._engine.add_request(request_id, prompt, sampling.ours(params), priority=priority)
        return self._engine.ids.of(request_id)

    def step(self) -> list[RequestOutput]:
        return [theirs(output) for output in self._engine.step()]

    def has_unfinished_requests(self) -> bool:
        return self._engine.has_unfinished_requests()

    def get_num_unfinished_requests(self) -> int:
        return self.engine_core.engine_core.scheduler.get_num_unfinished_requests()

    def abort_request(self, request_ids: str | Iterable[str]) -> None:
        """End requests, each given by its name or its internal id; one that has ended is passed over."""
        for either in [request_ids] if isinstance(request_ids, str) else list(request_ids):
            name = self._engine.ids.live_name(either)
            if name is not None:
                self._engine.abort_request(name)

    def get_tokenizer(self) -> Tokenizer:
        return Tokenizer(self._engine.get_tokenizer())


class LLM(Part):
    """Prompts in, text out; ``llm_engine`` for those who drive the steps themselves."""

    _path = "llm"
    _maker: ClassVar[EngineMaker]

    def __init__(self, model: str, **options: Any) -> None:
        self._engine = self._maker.make(model, options)
        self.llm_engine = LLMEngine(self._engine)

    def generate(
        self,
        prompts: Any,
        sampling_params: SamplingParams | Sequence[SamplingParams] | None = None,
        *,
        use_tqdm: Any = True,
        **options: Any,
    ) -> list[RequestOutput]:
        refuse("LLM.generate", options)
        outputs = self._engine.generate(prompts, sampling.ours(sampling_params), use_tqdm=bool(use_tqdm))
        return [theirs(output) for output in outputs]

    def chat(
        self,
        messages: Any,
        sampling_params: SamplingParams | Sequence[SamplingParams] | None = None,
        use_tqdm: Any = True,
        *,
        add_generation_prompt: bool = True,
        **options: Any,
    ) -> list[RequestOutput]:
        refuse("LLM.chat", options)
        outputs = self._engine.chat(
            messages,
            sampling.ours(sampling_params),
            use_tqdm=bool(use_tqdm),
            add_generation_prompt=add_generation_prompt,
        )
        return [theirs(output) for output in outputs]

    def get_tokenizer(self) -> Tokenizer:
        return self.llm_engine.get_tokenizer()
