"""The same as vLLM 0.32.0, token for token: every recorded run, with the real model in float32."""

from __future__ import annotations

import pytest

import vllm_traces
from pellucid.attention import KVStorage, attention_backend
from pellucid.engine.core import EngineCore
from pellucid.kv import first_difference
from pellucid.model import LoadedModel
from pellucid.runtime.forced import ForcedRunner
from pellucid.runtime.runner import Runner

pytestmark = pytest.mark.model


def real_runner(loaded: LoadedModel, num_blocks: int, block_size: int) -> Runner:
    config, model = loaded.config, loaded.model
    sizes = (config.num_layers, num_blocks, block_size, config.num_kv_heads, config.head_dim)
    storage = KVStorage(*sizes, model.dtype, model.device)
    return Runner(model, storage, attention_backend("reference"), eos_token_ids=config.eos_token_ids)


@pytest.mark.parametrize("name", vllm_traces.NAMES)
def test_tokens_and_tables_are_the_recorded_ones(name: str, smollm2: LoadedModel) -> None:
    trace = vllm_traces.load(name)
    engine = trace["engine"]
    runner = real_runner(smollm2, engine["num_gpu_blocks_override"], engine["block_size"])
    core = vllm_traces.engine(trace, runner)
    outputs: dict[str, list[int]] = {tag: [] for tag in trace["results"]}
    for observed in vllm_traces.drive(trace, core):
        snapshot = core.scheduler.kv.snapshot()
        tables = {request.name: list(request.blocks) for request in snapshot.requests}
        assert tables == {tag: vllm_traces.ids(req[4]) for tag, req in observed.recorded["req"].items()}
        assert list(snapshot.pool.reuse_order) == vllm_traces.ids(observed.recorded["freeq"])
        for progress in observed.progress:
            outputs[progress.sequence.name].append(progress.token)
    assert outputs == {tag: result["output"] for tag, result in trace["results"].items()}
    assert first_difference(core.scheduler.kv.journal, forced_run(trace, outputs).scheduler.kv.journal) is None


def forced_run(trace: dict[str, object], outputs: dict[str, list[int]]) -> EngineCore:
    """The same run without a model: by I13 its journal is the same."""
    core = vllm_traces.engine(trace, ForcedRunner(outputs))
    for _ in vllm_traces.drive(trace, core):
        pass
    return core
