"""What observing a vLLM costs in each of its steps, by the observer's own clock, on vLLM's real scheduler.

    python benchmarks/observer.py [--steps 400]      with the interpreter of a vLLM's environment, Pellucid importable

No model runs: the scheduler, the KV cache and the engine core are vLLM's own, and a stub answers for the workers. So
a step is short, and what is measured is the observer alone. ``decode``: 64 requests that decode; ``long``: 128 requests
of 4,000 tokens, some 32,000 live blocks; each unwatched as in a server that nobody looks at, and with a journal as
`observe` keeps it. The last line is one JSON object.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from report import Figure, print_json, show

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))
for name, value in {
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    "VLLM_USE_V1": "1",
    "VLLM_LOGGING_LEVEL": "ERROR",
    "VLLM_CPU_KVCACHE_SPACE": "4",
    "HF_HUB_OFFLINE": "1",
}.items():
    os.environ.setdefault(name, value)

TARGETS = {"decode": 30.0, "long": 75.0}  # microseconds a step
SHAPES = {"decode": (64, 512, 4_096), "long": (128, 4_000, 40_000)}  # requests, prompt tokens, blocks
WARM_UP = 20
PREFILL = 64  # steps that it may take until the last request decodes


def steps(engine: Any, count: int, observer: Any) -> tuple[list[float], list[float]]:
    """Microseconds of each of ``count`` whole steps, and of the observer's part in it."""
    whole, own = [], []
    for i in range(WARM_UP + count):
        before, began = observer.nanoseconds if observer else 0, time.perf_counter_ns()
        engine.step()
        if i >= WARM_UP:
            whole.append((time.perf_counter_ns() - began) / 1_000)
            own.append(((observer.nanoseconds if observer else 0) - before) / 1_000)
    return whole, own


def run(shape: str, way: str, count: int) -> list[Figure]:
    from attach.stub.engine import make_engine, sampling
    from pellucid.attach import observe
    from pellucid.attach.observer import Observer

    requests, prompt, blocks = SHAPES[shape]
    with tempfile.TemporaryDirectory() as folder:
        engine = make_engine(
            Path(folder),
            max_model_len=prompt + WARM_UP + count + PREFILL,
            num_gpu_blocks_override=blocks,
            max_num_batched_tokens=16_384,
            max_num_seqs=requests,
        )
        observer: Any = None
        if way == "unwatched":
            observer = Observer(engine.engine_core.engine_core.scheduler, lambda *_: None, listens=lambda: False)
        elif way == "journal":
            observer = observe(engine)._observer
        length = WARM_UP + count + PREFILL
        for number in range(requests):
            # The stub would read a whole prompt to make up a token: no model's worker does that in vLLM's process.
            options = sampling(extra_args={"forced": [(number + i) % 5_000 for i in range(length)]})
            options.max_tokens = length
            tokens = [(number * 7919 + i) % 5_000 for i in range(prompt)]
            engine.add_request(f"r{number}", {"prompt_token_ids": tokens}, options)
        scheduler = engine.engine_core.engine_core.scheduler
        while len(scheduler.running) < requests or any(r.num_computed_tokens < prompt for r in scheduler.running):
            engine.step()
        whole, own = steps(engine, count, observer)
        live = sum(len(tables[0]) for tables in map(scheduler.kv_cache_manager.get_block_ids, scheduler.requests))
    most = TARGETS[shape] if way == "unwatched" else None
    found = [Figure(f"{shape}_{way}_step", statistics.median(whole), "us")]
    if observer is not None:
        p99 = sorted(own)[int(len(own) * 0.99)]
        found.append(Figure(f"{shape}_{way}_observer", statistics.fmean(own), "us", most))
        found.append(Figure(f"{shape}_{way}_observer_median", statistics.median(own), "us"))
        found.append(Figure(f"{shape}_{way}_observer_p99", p99, "us"))
    return [*found, Figure(f"{shape}_{way}_live_blocks", live, "blocks")]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=400, help="steps of each run")
    count = parser.parse_args().steps
    import vllm

    figures: list[Figure] = []
    for shape in SHAPES:
        for way in ("alone", "unwatched", "journal"):
            for figure in run(shape, way, count):
                show(figure)
                figures.append(figure)
    print_json("observer", figures, vllm=vllm.__version__, steps=count)


if __name__ == "__main__":
    main()
