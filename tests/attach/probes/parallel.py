"""Two data-parallel engine cores on the stub, each in a process of its own, as `vllm serve --data-parallel-size 2` has.

Four of the eight requests go to each. The last line is one JSON object.
"""

from __future__ import annotations

import asyncio
import json
import os
import tempfile
import time
from pathlib import Path
from typing import Any

CORES = 2


async def generate(engine: Any, requests: dict[str, list[int]]) -> dict[str, list[int]]:
    """The output tokens of each request; every second one is for the other core."""
    from attach.stub.engine import sampling

    async def one(rank: int, name: str, tokens: list[int]) -> list[int]:
        stream = engine.generate({"prompt_token_ids": tokens}, sampling(), name, data_parallel_rank=rank)
        return [list(output.outputs[0].token_ids) async for output in stream][-1]

    ended = await asyncio.gather(*(one(i % CORES, *request) for i, request in enumerate(requests.items())))
    return dict(zip(requests, ended, strict=True))


async def run(folder: Path) -> dict[str, Any]:
    import vllm
    from vllm import AsyncEngineArgs
    from vllm.v1.engine.async_llm import AsyncLLM

    from attach.stub.engine import arguments, expected, prompts

    begun = time.monotonic()
    engine = AsyncLLM.from_engine_args(AsyncEngineArgs(**arguments(folder), data_parallel_size=CORES))
    started = time.monotonic()
    try:
        requests = prompts()
        outputs = await asyncio.wait_for(generate(engine, requests), 300)
        processes = [process.name for process in engine.engine_core.resources.engine_manager.processes]
    finally:
        engine.shutdown()
    return {
        "version": vllm.__version__,
        "client": type(engine.engine_core).__name__,
        "cores": processes,
        "outputs as expected": outputs == expected(requests),
        "seconds": [round(started - begun, 1), round(time.monotonic() - started, 1)],
    }


def main() -> None:
    os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "1"
    with tempfile.TemporaryDirectory() as folder:
        print(json.dumps(asyncio.run(run(Path(folder)))), flush=True)


if __name__ == "__main__":
    main()
