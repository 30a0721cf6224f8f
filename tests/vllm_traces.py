"""Reading the recorded vLLM runs in ``tests/data/vllm_traces`` and driving an engine through them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pellucid.engine.config import SchedulerConfig
from pellucid.engine.core import EngineCore, Executor
from pellucid.engine.scheduler import Progress, Scheduler
from pellucid.kv import KVManager
from pellucid.plan import Request, SamplingParams

FOLDER = Path(__file__).parent / "data" / "vllm_traces"
NAMES = sorted(path.stem for path in FOLDER.glob("*.json"))
EOS = 2  # <|im_end|> of SmolLM2-135M-Instruct


def load(name: str) -> dict[str, Any]:
    return json.loads((FOLDER / f"{name}.json").read_text())


def ids(runs: str) -> list[int]:
    """``"44 67..69 43..42"`` is [44, 67, 68, 69, 43, 42]."""
    result: list[int] = []
    for run in runs.split():
        first, _, last = run.partition("..")
        a, b = int(first), int(last or first)
        result += range(a, b + 1) if a <= b else range(a, b - 1, -1)
    return result


def manager(trace: dict[str, Any], **options: Any) -> KVManager:
    engine = trace["engine"]
    return KVManager(
        engine["num_gpu_blocks_override"],
        engine["block_size"],
        enable_prefix_caching=engine["enable_prefix_caching"],
        **{"reuse_policy": "vllm-0.24", "journal_capacity": None, "verify_hits": True, **options},
    )


def scheduler(trace: dict[str, Any], kv: KVManager) -> Scheduler:
    engine, defaults = trace["engine"], trace["defaults"]
    config = SchedulerConfig(
        max_model_len=engine["max_model_len"],
        max_num_seqs=defaults["max_num_seqs"],
        max_num_batched_tokens=defaults["max_num_batched_tokens"],
        scheduling_policy=defaults["policy"],
        watermark=engine.get("watermark", 0.0),
        eos_token_ids=(EOS,),
    )
    return Scheduler(kv, config)


def request(trace: dict[str, Any], tag: str) -> Request:
    spec = next(spec for spec in trace["requests"] if spec["tag"] == tag)
    sampling = SamplingParams(temperature=0, max_tokens=spec["max_tokens"], ignore_eos=spec["ignore_eos"])
    return Request(name=tag, prompt=tuple(spec["prompt"]), sampling=sampling, priority=spec["priority"])


@dataclass
class Observed:
    """One step of a run beside what vLLM recorded for it."""

    recorded: dict[str, Any]
    progress: list[Progress]
    core: EngineCore


def drive(trace: dict[str, Any], core: EngineCore) -> Iterator[Observed]:
    """Run the whole scenario, yielding after every step."""
    for recorded in trace["steps"]:
        for tag in recorded.get("add", ()):
            core.scheduler.add(request(trace, tag))
        for tag in recorded.get("abort", ()):
            core.scheduler.abort(tag)
        yield Observed(recorded, core.step(), core)


def engine(trace: dict[str, Any], executor: Executor, **options: Any) -> EngineCore:
    return EngineCore(scheduler(trace, manager(trace, **options)), executor)
