"""``vllm_config``: what the engine was set up with."""

from __future__ import annotations

from pellucid.compat.engine import Engine
from pellucid.compat.uncovered import Part

PATH = "llm.llm_engine.vllm_config"


class CacheConfig(Part):
    """``num_gpu_blocks`` counts the reserved block 0, as in vLLM."""

    _path = f"{PATH}.cache_config"

    def __init__(self, engine: Engine) -> None:
        self.block_size = engine.options.block_size
        self.num_gpu_blocks = engine.pool.num_blocks
        self.num_gpu_blocks_override = engine.options.num_gpu_blocks_override
        self.enable_prefix_caching = engine.options.enable_prefix_caching
        self.gpu_memory_utilization = engine.options.gpu_memory_utilization


class SchedulerConfig(Part):
    _path = f"{PATH}.scheduler_config"

    def __init__(self, engine: Engine) -> None:
        self.max_model_len = engine.pool.max_model_len
        self.max_num_seqs = engine.options.limits.requests
        self.max_num_batched_tokens = engine.options.limits.tokens
        self.policy = engine.options.scheduling_policy
        self.async_scheduling = engine.options.async_scheduling
        self.enable_chunked_prefill = True


class ModelConfig(Part):
    _path = f"{PATH}.model_config"

    def __init__(self, engine: Engine) -> None:
        self._vocab_size = engine.scheduler.config.vocab_size
        self.model = engine.options.model
        self.max_model_len = engine.pool.max_model_len
        self.seed = engine.options.seed

    def get_vocab_size(self) -> int | None:
        return self._vocab_size


class VllmConfig(Part):
    _path = PATH

    def __init__(self, engine: Engine) -> None:
        self.cache_config = CacheConfig(engine)
        self.scheduler_config = SchedulerConfig(engine)
        self.model_config = ModelConfig(engine)
