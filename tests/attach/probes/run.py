"""Runs the stub's eight requests, which share prefixes and pre-empt each other, once for each way to start vLLM.

    python run.py '{"groups": [0, 64], "asynchronous": true, "multiprocess": true, "forced": [7, 8, 9]}' ...

Each argument has the fields of `attach.stub.Options`, ``multiprocess``, and ``forced``, the first tokens of every
output. The last line is one JSON object.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Any


def watch_preemptions(scheduler: Any) -> list[str]:
    """The names of the pre-empted, filled while the scheduler runs: who held a table before a step and not after."""
    names: list[str] = []
    schedule = scheduler.schedule

    def noting(*args: Any, **options: Any) -> Any:
        held = [request.request_id for request in scheduler.running]
        output = schedule(*args, **options)
        names.extend(name for name in held if not any(scheduler.kv_cache_manager.get_block_ids(name)))
        return output

    scheduler.schedule = noting
    return names


def run(multiprocess: bool = False, forced: Sequence[int] = (), **wanted: Any) -> dict[str, Any]:
    from attach.stub import END_TOKEN, Options
    from attach.stub.engine import add, drain, expected, make_engine, prompts

    options = Options(**wanted)
    os.environ |= options.environment
    requests = prompts()
    with tempfile.TemporaryDirectory() as folder:
        # 0.11.0 asks for statistics from every step, and an asynchronous one may have none.
        engine = make_engine(Path(folder), multiprocess, disable_log_stats=options.asynchronous)
        scheduler = None if multiprocess else engine.engine_core.engine_core.scheduler
        preempted = watch_preemptions(scheduler) if scheduler else []
        add(engine, requests, extra_args={"forced": list(forced)}, stop_token_ids=[END_TOKEN])
        steps, outputs = drain(engine)
    seen = {
        "engine": type(engine.engine_core).__name__,
        "steps": steps,
        "outputs as expected": outputs == expected(requests, forced, options),
    }
    if scheduler:
        seen |= {
            "preemptions": len(preempted),
            "scheduler": type(scheduler).__name__,
            "groups": [type(group.kv_cache_spec).__name__ for group in scheduler.kv_cache_config.kv_cache_groups],
            "free": scheduler.kv_cache_manager.block_pool.get_num_free_blocks(),
        }
    return seen


def main() -> None:
    begun = time.monotonic()
    import vllm

    print(json.dumps({"imported": round(time.monotonic() - begun, 1)}), flush=True)
    runs: list[dict[str, Any]] = []
    for way in map(json.loads, sys.argv[1:]):
        begun = time.monotonic()
        try:
            seen = run(**way)
        except Exception:
            seen = {"failed": traceback.format_exc()[-1500:]}
        runs.append({"way": way, "seconds": round(time.monotonic() - begun, 1)} | seen)
    print(json.dumps({"version": vllm.__version__, "runs": runs}), flush=True)


if __name__ == "__main__":
    main()
