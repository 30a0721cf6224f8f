"""Pellucid itself as a subject of its own lab."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pellucid import LLM, SamplingParams, __version__
from pellucid.kv.acts import AnyAct
from pellucid.kv.invariants import Violation
from pellucid.kv.memory import PoolMemory
from pellucid.kv.snapshot import Snapshot
from pellucid.lab.subject import About, Output
from pellucid.model import LoadedModel


class PellucidSubject:
    """A `Subject` over a `pellucid.LLM`."""

    def __init__(self, llm: LLM) -> None:
        self.llm = llm
        self.about = _about(llm)
        self._auditor = llm.kv.auditor()

    def add_request(self, name: str, prompt: Sequence[int], max_tokens: int, salt: str | None = None) -> None:
        sampling = SamplingParams(temperature=0, max_tokens=max_tokens, ignore_eos=True)
        self.llm.add_request(name, {"prompt_token_ids": prompt, "cache_salt": salt}, sampling)

    def abort_request(self, name: str) -> None:
        self.llm.abort_request(name)

    def move_block(self, block: int, to: int) -> bool:
        self.llm.move_block(block, to)
        return True

    def step(self) -> Mapping[str, Output]:
        return {
            output.request_id: Output(tuple(output.outputs[0].token_ids), output.num_cached_tokens, output.finished)
            for output in self.llm.step()
        }

    def has_unfinished_requests(self) -> bool:
        return self.llm.has_unfinished_requests()

    def snapshot(self) -> Snapshot:
        return self.llm.kv.snapshot()

    def acts_since(self, number: int) -> Sequence[AnyAct]:
        return self.llm.kv.journal.since(number)

    def memory(self) -> PoolMemory | None:
        return self.llm.kv.memory()

    def audit(self) -> Sequence[Violation]:
        return self._auditor.check()


class PellucidLaboratory:
    """A `Laboratory` of Pellucid engines that share one set of weights, loaded with the first of them.

    ``options`` are those of `pellucid.LLM`. Without a pool size among them the pool is small, so that
    a whole run is quick and re-use can be seen: 1,264 tokens (79 blocks of 16), as in the experiment
    this lab grew out of, but at least 14 blocks and at most 316. On a GPU graphs are captured when they are needed,
    for each engine runs a few sizes of steps only.

    Raises what `LLM` raises, when a subject is made.
    """

    SIZES = ("num_gpu_blocks_override", "kv_cache_tokens", "kv_cache_memory_bytes")
    TOKENS, LEAST, MOST = 1264, 14, 316

    def __init__(self, model: str | LoadedModel, **options: Any) -> None:
        self._model = model
        self._options = {"lazy_graphs": True, **options}
        if not any(options.get(size) for size in self.SIZES):
            block_size = options.get("block_size", 16)
            fitting = self.TOKENS // block_size if isinstance(block_size, int) and block_size > 0 else 0
            self._options["num_gpu_blocks_override"] = 1 + min(self.MOST, max(self.LEAST, fitting))

    def __call__(self, **settings: Any) -> PellucidSubject:
        llm = LLM(self._model, **self._with({"journal_capacity": None, **settings}))
        self._model = llm.loaded
        return PellucidSubject(llm)

    def _with(self, settings: dict[str, Any]) -> dict[str, Any]:
        """The options under ``settings``; a pool given there replaces theirs, and no request is longer than it is."""
        options = dict(self._options)
        if blocks := settings.get("num_gpu_blocks_override"):
            for size in self.SIZES:
                options.pop(size, None)
            if longest := options.get("max_model_len"):
                options["max_model_len"] = min(longest, (blocks - 1) * options.get("block_size", 16))
        return {**options, **settings}


def _about(llm: LLM) -> About:
    model, options = llm.loaded.model, llm.options
    dtype = str(model.dtype).removeprefix("torch.")
    return About(
        engine=f"pellucid {__version__}",
        model=llm.loaded.name,
        dtype=dtype,
        device=str(model.device),
        prefix_caching=options.enable_prefix_caching,
        max_model_len=llm.pool.max_model_len,
        max_num_batched_tokens=options.limits.tokens,
        max_num_seqs=options.limits.requests,
        spare_blocks=int(options.watermark * llm.pool.num_blocks),
        vocab_size=llm.loaded.config.vocab_size,
        scheduling_policy=options.scheduling_policy,
        exact=llm.batch_invariant or dtype == "float32",
    )
