"""The engine as its users hold it: prompts in, text out, and every block in sight."""

from __future__ import annotations

import weakref
from collections.abc import Mapping, Sequence
from typing import Any

from pellucid.engine.assembly import assemble
from pellucid.engine.collector import undisturbed
from pellucid.engine.interrupt import interrupts_wait
from pellucid.engine.live import LiveRequest
from pellucid.engine.options import DEFAULT_MODEL, EngineOptions
from pellucid.engine.output import RequestOutput
from pellucid.engine.progress import progress
from pellucid.engine.prompt import conversations, listed, parse
from pellucid.engine.scheduler import Progress
from pellucid.errors import RequestError
from pellucid.model import LoadedModel, Tokenizer
from pellucid.plan import Request, SamplingParams


class LLM:
    """A model and its engine, in this process.

    ``LLM(model, **options)``: the options are those of `EngineOptions`, under vLLM's names.
    `generate` and `chat` run prompts to the end; `add_request` and `step` let you drive the engine
    one step at a time; `kv` shows who holds which block, at any moment. ``model`` may be the
    ``loaded`` of another engine: the two then share their weights and nothing else.
    ``batch_invariant``: equal requests give equal tokens, bit for bit, whatever shares their steps.

    Raises `ConfigError` for options that cannot work and `ModelError` for a model that cannot be
    had, both before the pool is allocated.
    """

    def __init__(self, model: str | LoadedModel = DEFAULT_MODEL, **options: Any) -> None:
        loaded = model if isinstance(model, LoadedModel) else None
        name = loaded.name if loaded else model
        made = assemble(EngineOptions.of("LLM", {"model": name, **options}), loaded)
        self._core, self.kv, self.tokenizer, self.pool, self.loaded, self.batch_invariant, broadcast, self.options = (
            made
        )
        if broadcast is not None:  # its thread would outlive an engine that is given up
            weakref.finalize(self, broadcast.publisher.close, "the program let go of the engine").atexit = False
        self._live: dict[str, LiveRequest] = {}
        self._news: dict[int, LiveRequest] = {}  # by handle: who got a token that nobody has been told of
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
        mine = self._add_all(many, _one_each(sampling_params, len(many)))
        unfinished = {live.handle for live in mine}
        asynchronous = self.options.async_scheduling is not False
        try:
            with undisturbed(), progress("Generating", len(mine), show=use_tqdm) as advance:
                while unfinished:
                    if ended := unfinished.intersection(self._advance(asynchronous)):
                        unfinished -= ended
                        advance(len(ended))
        finally:
            self._leave(mine)
        return [live.output() for live in mine]

    def chat(
        self,
        messages: Sequence[Mapping[str, Any]] | Sequence[Sequence[Mapping[str, Any]]],
        sampling_params: SamplingParams | Sequence[SamplingParams] | None = None,
        *,
        use_tqdm: bool = True,
        add_generation_prompt: bool = True,
    ) -> list[RequestOutput]:
        """Answer one conversation or many, each a list of ``{"role": …, "content": …}``.

        Raises `RequestError` for messages of another form, or if the model came without a tokenizer.
        """
        if self.tokenizer is None:
            raise RequestError("this engine has no tokenizer, so it has no chat template; use generate with token ids.")
        prompts = []
        for conversation in conversations(messages):
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
        if not isinstance(sampling_params, SamplingParams | None):
            raise RequestError(f"sampling_params must be a SamplingParams, not {sampling_params!r}.")
        parsed = parse(prompt, self.tokenizer)
        request = Request(
            name=request_id,
            prompt=parsed.tokens,
            sampling=sampling_params or SamplingParams(),
            priority=priority,
            salt=parsed.salt,
        )
        sequence = self._core.add(request)
        self._live[request_id] = LiveRequest(sequence, parsed, self.tokenizer)
        return request_id

    def step(self) -> list[RequestOutput]:
        """Run one engine step; returns every request that got a token, with all it has so far.

        Whoever has a large pool, or many requests, and drives them with it and not with `generate`, may want
        `pellucid.engine.collector.undisturbed` around the loop.
        """
        self._advance(bool(self.options.async_scheduling))
        news, self._news = self._news, {}
        return [live.output() for live in news.values()]

    def has_unfinished_requests(self) -> bool:
        """Whether a further `step` has anything to do or to deliver."""
        return self._core.has_unfinished_requests() or bool(self._news)

    def abort_request(self, request_id: str) -> RequestOutput:
        """End a request now; its blocks return and what it has so far is returned.

        Raises `UnknownRequest`, or `FinishedRequest` for one that has ended by itself.
        """
        self._core.abort(request_id)
        live = self._forget(request_id)
        self._news.pop(live.handle, None)
        return live.output()

    def move_block(self, block: int, to: int) -> None:
        """Move a live block of KV memory to a free or cached one: its content, and every table that holds it.

        Between two steps; the answers stay what they are. Raises `MoveRefused`, with nothing changed, if
        ``block`` is not held, if ``to`` is not reclaimable, or if it is cached and the next block of its
        prefix is findable.
        """
        self._core.move(block, to)

    def get_tokenizer(self) -> Tokenizer:
        """The model's tokenizer. Raises `RequestError` if it has none."""
        if self.tokenizer is None:
            raise RequestError("this engine has no tokenizer; give prompts as token ids.")
        return self.tokenizer

    # -- how ---------------------------------------------------------------------------------------

    def _advance(self, asynchronous: bool) -> list[int]:
        """Run one engine step, and note who got a token; returns the handles of those who ended."""
        with interrupts_wait():  # half a step would leave the engine unusable
            self._core.asynchronous = asynchronous
            return self._note(self._core.step())

    def _note(self, progress: list[Progress]) -> list[int]:
        live = self._live
        self._news |= {update.sequence.handle: live[update.sequence.name] for update in progress}
        ended = [update.sequence for update in progress if update.last]
        for sequence in ended:
            self._forget(sequence.name)
        return [sequence.handle for sequence in ended]

    def _forget(self, name: str) -> LiveRequest:
        """The request has ended; its name is free again."""
        return self._live.pop(name)

    def _add_all(self, prompts: list[Any], params: list[SamplingParams]) -> list[LiveRequest]:
        added: list[LiveRequest] = []
        try:
            for prompt, sampling in zip(prompts, params, strict=True):
                added.append(self._live[self.add_request(self._next_name(), prompt, sampling)])
        except BaseException:
            self._leave(added)
            raise
        return added

    def _next_name(self) -> str:
        while (name := str(self._names)) in self._live:
            self._names += 1
        self._names += 1
        return name

    def _leave(self, requests: list[LiveRequest]) -> None:
        """Whatever happened, leave nothing of ``requests`` behind, and nothing under way for nobody."""
        for live in requests:
            self._news.pop(live.handle, None)
            if not live.finished:
                self._core.abort(live.sequence.name)
                self._forget(live.sequence.name)
        if not self._live:
            with interrupts_wait():
                self._note(self._core.drain())


def _one_each(params: SamplingParams | Sequence[SamplingParams] | None, count: int) -> list[SamplingParams]:
    if params is None:
        return [SamplingParams()] * count
    if isinstance(params, SamplingParams):
        return [params] * count
    if not isinstance(params, Sequence) or not all(isinstance(each, SamplingParams) for each in params):
        raise RequestError(f"sampling_params must be a SamplingParams or a list of them, not {params!r}.")
    if len(params) != count:
        raise RequestError(f"{count} prompts came with {len(params)} sampling_params; give one for all, or one each.")
    return list(params)
