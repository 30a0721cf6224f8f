"""Fresh vLLM engines for the lab, in this process, one at a time."""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pellucid.errors import ConfigError
from pellucid.lab.scenario import NotArisen
from pellucid.lab.subject import About
from pellucid.lab.vllm_model import vllm_model
from pellucid.lab.vllm_options import read_options
from pellucid.lab.vllm_presets import Preset, on_cpu, preset_environment, preset_options
from pellucid.lab.vllm_subject import VllmSubject
from pellucid.lang import say


class VllmLaboratory:
    """A `Laboratory` of vLLM engines. ``options`` are vLLM's own, as its ``EngineArgs`` take them; ``words`` are more
    of them, as on its command line.

    ``presets`` are what it set in the environment and among the options, each with the reason. There is one engine
    at a time: making the next one ends the one before.

    Raises `ConfigError` where there is no vLLM, and with vLLM's own words if it does not start.
    """

    def __init__(self, model: str, words: Sequence[str] = (), **options: Any) -> None:
        _require()
        model, self.cpu = vllm_model(model), on_cpu()
        environment = preset_environment(model, cpu=self.cpu)
        with _stdout_kept_clean():
            self._arguments = _module("vllm.engine.arg_utils")
        if words:
            parser = self._arguments.FlexibleArgumentParser(add_help=False)
            options |= read_options(self._arguments.EngineArgs, parser, words)
        own = preset_options(options, cpu=self.cpu)
        self.presets: tuple[Preset, ...] = (*environment, *own)
        self._options: dict[str, Any] = {**{preset.name: preset.value for preset in own}, **options, "model": model}
        self._longest: int | None = None
        self._engine: Any = None
        self._subject: VllmSubject | None = None

    def __call__(self, **settings: Any) -> VllmSubject:
        engine = self.engine(**settings)
        self._subject = VllmSubject(engine, _about(engine.vllm_config))
        return self._subject

    def engine(self, **settings: Any) -> Any:
        """A fresh ``LLMEngine`` with these settings, observed by nobody. The one before is ended."""
        self.close()
        with _stdout_kept_clean(), _in_its_words():
            config = self._config(settings)
            if settings.get("async_scheduling") and not config.scheduler_config.async_scheduling:
                device = str(config.device_config.device_type)
                raise NotArisen(say("vLLM turns asynchronous scheduling off on this device ({device})", device=device))
            kind = _module("vllm.v1.engine.llm_engine").LLMEngine
            self._engine = kind.from_vllm_config(config, disable_log_stats=True)
        return self._engine

    @property
    def block_size(self) -> int:
        """Tokens per block."""
        return int(self._options["block_size"])

    def close(self) -> None:
        """End the engine that there is: its memory comes back, and what vLLM keeps for a whole process goes."""
        if self._subject is not None:
            self._subject.close()
            self._subject = None
        if self._engine is not None:
            self._engine.engine_core.shutdown()
            self._engine = None
            _module("vllm.distributed.parallel_state").cleanup_dist_env_and_memory()

    def _config(self, settings: dict[str, Any]) -> Any:
        """Raises `NotArisen` for settings that no vLLM has, or not this one."""
        arguments = self._arguments.EngineArgs
        if settings.get("shuffle_blocks") is not None:
            raise NotArisen(say("vLLM hands its blocks out in order, and nobody can shuffle them"))
        if settings.get("async_scheduling") and not hasattr(arguments, "async_scheduling"):
            raise NotArisen(say("this vLLM has no asynchronous scheduling"))
        known = {name: value for name, value in settings.items() if hasattr(arguments, name)}
        options = {**self._options, **known}
        if self._longest is None:
            self._longest = arguments(**self._options).create_engine_config().model_config.max_model_len
        return arguments(**_fitted(options, self._longest)).create_engine_config()


def _fitted(options: dict[str, Any], longest: int) -> dict[str, Any]:
    """``options`` with no request longer than the pool, and no more requests than tokens in a step."""
    if blocks := options.get("num_gpu_blocks_override"):
        options["max_model_len"] = min(options.get("max_model_len") or longest, (blocks - 1) * options["block_size"])
    if budget := options.get("max_num_batched_tokens"):
        options["max_num_seqs"] = min(options["max_num_seqs"], budget)
    return options


def _about(config: Any) -> About:
    scheduler, cache, model = config.scheduler_config, config.cache_config, config.model_config
    dtype = str(model.dtype).removeprefix("torch.")
    return About(
        engine=f"vllm {_module('vllm').__version__}",
        model=Path(model.model).name if Path(model.model).is_dir() else model.model,
        dtype=dtype,
        device=str(config.device_config.device_type),
        prefix_caching=bool(cache.enable_prefix_caching),
        max_model_len=model.max_model_len,
        max_num_batched_tokens=scheduler.max_num_batched_tokens,
        max_num_seqs=scheduler.max_num_seqs,
        spare_blocks=int(getattr(scheduler, "watermark", 0.0) * (cache.num_gpu_blocks or 0)),
        vocab_size=model.get_vocab_size(),
        scheduling_policy=str(scheduler.policy),
        fences=False,
        exact=dtype == "float32" or os.environ.get("VLLM_BATCH_INVARIANT") == "1",
    )


def _require() -> None:
    if importlib.util.find_spec("vllm") is None:
        raise ConfigError(
            "there is no vLLM in this Python's environment: `pip install pellucid` into the environment that has it, "
            "and run `pellucid` from there."
        )


def _module(name: str) -> Any:
    return importlib.import_module(name)


@contextmanager
def _in_its_words() -> Iterator[None]:
    """A vLLM that does not start says why."""
    try:
        yield
    except NotArisen:
        raise
    except Exception as error:  # of any type: of vLLM, pydantic, torch, huggingface_hub
        raise ConfigError(f"vLLM does not start: {' '.join(str(error).split())}") from error


@contextmanager
def _stdout_kept_clean() -> Iterator[None]:
    """What is printed meanwhile, by libraries too, goes to stderr: stdout is for the report."""
    sys.stdout.flush()
    kept = os.dup(1)
    os.dup2(2, 1)
    try:
        yield
    finally:
        sys.stdout.flush()
        os.dup2(kept, 1)
        os.close(kept)
