"""The engine as its users hold it: prompts in, text out, and every block in sight."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from pellucid.attention import KVStorage, attention_backend
from pellucid.engine.config import SchedulerConfig
from pellucid.engine.core import EngineCore
from pellucid.engine.detokenizer import Detokenizer
from pellucid.engine.memory import PoolSize, pool_size
from pellucid.engine.options import DEFAULT_MODEL, EngineOptions
from pellucid.engine.output import CompletionOutput, RequestOutput
from pellucid.engine.prompt import Prompt, listed, parse
from pellucid.engine.scheduler import Scheduler
from pellucid.engine.sequence import Sequence as Submission
from pellucid.errors import RequestError
from pellucid.kv.manager import KVManager
from pellucid.kv.reader import KVReader, PoolMemory
from pellucid.model import Tokenizer, load, read_config
from pellucid.plan import Request, SamplingParams
from pellucid.runtime.runner import Runner

log = logging.getLogger("pellucid")


class _Live:
    """A request the caller still waits for: its submission, its prompt's text, its text so far."""

    def __init__(self, sequence: Submission, prompt: Prompt, tokenizer: Tokenizer | None) -> None:
        self.sequence = sequence
        self.prompt = prompt
        skip = sequence.request.sampling.skip_special_tokens
        self.detokenizer = Detokenizer(tokenizer, skip_special_tokens=skip) if tokenizer else None

    def output(self) -> RequestOutput:
        sequence = self.sequence
        completion = CompletionOutput(
            index=0,
            text=self.detokenizer.text if self.detokenizer else "",
            token_ids=sequence.output,
            finish_reason=sequence.finish_reason,
            stop_reason=sequence.stop_reason,
        )
        return RequestOutput(
            request_id=sequence.name,
            prompt=self.prompt.text,
            prompt_token_ids=list(self.prompt.tokens),
            outputs=[completion],
            finished=sequence.finish_reason is not None,
            num_cached_tokens=sequence.table.cached_tokens,
        )


class LLM:
    """A model and its engine, in this process.

    ``LLM(model, **options)``: the options are those of `EngineOptions`, under vLLM's names.
    `generate` and `chat` run prompts to the end; `add_request` and `step` let you drive the engine
    one step at a time; `kv` shows who holds which block, at any moment.

    Raises `ConfigError` for options that cannot work and `ModelError` for a model that cannot be
    had, both before the pool is allocated.
    """

    def __init__(self, model: str = DEFAULT_MODEL, **options: Any) -> None:
        self.options = EngineOptions.of("LLM", {"model": model, **options})
        self._core, self.tokenizer, self.pool = _build(self.options)
        runner = self._core.executor
        assert isinstance(runner, Runner)
        self.kv = KVReader(self._core.scheduler.kv, lambda: PoolMemory(runner.pool_address, runner.pool_bytes))
        self._live: dict[str, _Live] = {}
        self._undelivered: dict[str, RequestOutput] = {}
        self._names = 0

    # -- to the end --------------------------------------------------------------------------------

    def generate(
        self,
        prompts: Any,
        sampling_params: SamplingParams | Sequence[SamplingParams] | None = None,
        *,
        use_tqdm: bool = True,
    ) -> list[RequestOutput]:
        """Complete one prompt or many; the outputs come in the order of the prompts.

        A prompt is a string, a list of token ids, or a mapping with ``prompt`` or
        ``prompt_token_ids`` and, if wanted, ``cache_salt``. Other requests in the engine go on
        meanwhile, and what they produce is kept for the next `step`.

        Raises `RequestError` if a prompt is refused; then none of them has run.
        """
        many = listed(prompts)
        names = self._add_all(many, _one_each(sampling_params, len(many)))
        outputs: dict[str, RequestOutput] = {}
        asynchronous = self.options.async_scheduling is not False
        try:
            with _progress(len(names), show=use_tqdm) as (bar, task):
                while len(outputs) < len(names):
                    for output in self._step(asynchronous):
                        if output.request_id not in names:
                            self._undelivered[output.request_id] = output
                        elif output.finished:
                            outputs[output.request_id] = output
                            bar.advance(task)
        finally:
            self._leave(names)
        return [outputs[name] for name in names]

    def chat(
        self,
        messages: Sequence[Mapping[str, Any]] | Sequence[Sequence[Mapping[str, Any]]],
        sampling_params: SamplingParams | Sequence[SamplingParams] | None = None,
        *,
        use_tqdm: bool = True,
        add_generation_prompt: bool = True,
    ) -> list[RequestOutput]:
        """Answer one conversation or many, each a list of ``{"role": …, "content": …}``."""
        if self.tokenizer is None:
            raise RequestError("this engine has no tokenizer, so it has no chat template; use generate with token ids.")
        one = bool(messages) and isinstance(messages[0], Mapping)
        conversations: Any = [messages] if one else messages
        prompts = []
        for conversation in conversations:
            text = self.tokenizer.apply_chat_template(conversation, add_generation_prompt=add_generation_prompt)
            ids = self.tokenizer.encode(text, add_special_tokens=False)
            prompts.append({"prompt_token_ids": ids})
        return self.generate(prompts, sampling_params, use_tqdm=use_tqdm)

    # -- one step at a time ------------------------------------------------------------------------

    def add_request(
        self, request_id: str, prompt: Any, sampling_params: SamplingParams | None = None, *, priority: int = 0
    ) -> str:
        """Queue a request under the caller's own name, which `kv` knows it by from now on.

        Raises `RequestError` (or `DuplicateRequest`); nothing has been allocated then.
        """
        parsed = parse(prompt, self.tokenizer)
        request = Request(
            name=request_id,
            prompt=parsed.tokens,
            sampling=sampling_params or SamplingParams(),
            priority=priority,
            salt=parsed.salt,
        )
        sequence = self._core.scheduler.add(request)
        self._live[request_id] = _Live(sequence, parsed, self.tokenizer)
        return request_id

    def step(self) -> list[RequestOutput]:
        """Run one engine step; returns every request that got a token, with all it has so far."""
        outputs = self._step(bool(self.options.async_scheduling))
        kept, self._undelivered = self._undelivered, {}
        for output in outputs:
            kept.pop(output.request_id, None)
        return [*kept.values(), *outputs]

    def has_unfinished_requests(self) -> bool:
        """Whether a further `step` has anything to do or to deliver."""
        return self._core.has_unfinished_requests() or bool(self._undelivered)

    def abort_request(self, request_id: str) -> RequestOutput:
        """End a request now; its blocks return and what it has so far is returned.

        Raises `UnknownRequest`, or `FinishedRequest` for one that has ended by itself.
        """
        self._core.scheduler.abort(request_id)
        return self._live.pop(request_id).output()

    def get_tokenizer(self) -> Tokenizer:
        """The model's tokenizer. Raises `RequestError` if it has none."""
        if self.tokenizer is None:
            raise RequestError("this engine has no tokenizer; give prompts as token ids.")
        return self.tokenizer

    # -- how ---------------------------------------------------------------------------------------

    def _step(self, asynchronous: bool) -> list[RequestOutput]:
        self._core.asynchronous = asynchronous
        outputs: dict[str, RequestOutput] = {}
        for sequence, token in self._core.step():
            live = self._live[sequence.name]
            ended = sequence.finish_reason is not None
            if live.detokenizer:
                live.detokenizer.add(token, last=ended)
            outputs[sequence.name] = live.output()
            if ended:
                del self._live[sequence.name]
        return list(outputs.values())

    def _add_all(self, prompts: list[Any], params: list[SamplingParams]) -> list[str]:
        names: list[str] = []
        try:
            for prompt, sampling in zip(prompts, params, strict=True):
                names.append(self.add_request(self._next_name(), prompt, sampling))
        except BaseException:
            self._leave(names)
            raise
        return names

    def _next_name(self) -> str:
        while (name := str(self._names)) in self._live:
            self._names += 1
        self._names += 1
        return name

    def _leave(self, names: list[str]) -> None:
        """Whatever happened, leave nothing of ``names`` behind."""
        for name in names:
            if name in self._live:
                self.abort_request(name)


def _build(options: EngineOptions) -> tuple[EngineCore, Tokenizer | None, PoolSize]:
    """Check first, cheapest first; then load the weights; then allocate the pool, once."""
    config = read_config(options.model)
    attention = attention_backend(options.attention_backend)
    attention.check(options.block_size, config.head_dim, config.num_heads, config.num_kv_heads)
    loaded = load(
        options.model,
        dtype=options.dtype,
        device="cpu" if options.device == "auto" else options.device,
        load_format=options.load_format,
        seed=options.seed,
    )
    model = loaded.model
    block_bytes = KVStorage.bytes_per_block(
        config.num_layers, options.block_size, config.num_kv_heads, config.head_dim, model.dtype
    )
    size = pool_size(options, block_bytes, config.max_position)
    kv = KVManager(
        size.num_blocks,
        options.block_size,
        enable_prefix_caching=options.enable_prefix_caching,
        reuse_policy=options.reuse_policy,
        journal_capacity=options.journal_capacity,
        verify_hits=options.verify_prefix_hits,
    )
    scheduler_config = SchedulerConfig(
        max_model_len=size.max_model_len,
        max_num_seqs=options.max_num_seqs,
        max_num_batched_tokens=options.max_num_batched_tokens,
        scheduling_policy=options.scheduling_policy,
        watermark=options.watermark,
        eos_token_ids=config.eos_token_ids,
        vocab_size=config.vocab_size,
    )
    storage = KVStorage(
        config.num_layers,
        size.num_blocks,
        options.block_size,
        config.num_kv_heads,
        config.head_dim,
        model.dtype,
        model.device,
    )
    runner = Runner(model, storage, attention, eos_token_ids=config.eos_token_ids, seed=options.seed)
    log.info(_summary(options, loaded.name, size))
    return (
        EngineCore(Scheduler(kv, scheduler_config), runner),
        None if options.skip_tokenizer_init else loaded.tokenizer,
        size,
    )


def _summary(options: EngineOptions, name: str, size: PoolSize) -> str:
    usable = size.num_blocks - 1
    return (
        f"{name}: {size.num_blocks} blocks of {options.block_size} tokens ({size.why}), 1 reserved, {usable} usable = "
        f"{usable * options.block_size:,} tokens, {size.nbytes / 1024**2:,.1f} MiB; max_model_len {size.max_model_len}"
    )


def _one_each(params: SamplingParams | Sequence[SamplingParams] | None, count: int) -> list[SamplingParams]:
    if params is None:
        return [SamplingParams()] * count
    if isinstance(params, SamplingParams):
        return [params] * count
    if len(params) != count:
        raise RequestError(f"{count} prompts came with {len(params)} sampling_params; give one for all, or one each.")
    return list(params)


@contextmanager
def _progress(total: int, *, show: bool) -> Iterator[tuple[Progress, TaskID]]:
    """A bar of finished requests on a terminal's stderr."""
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True, disable=not (show and console.is_terminal)) as bar:
        yield bar, bar.add_task("Generating", total=total)
