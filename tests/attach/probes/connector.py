"""The stub's requests without a KV connector and with the one that observes: what vLLM did, as one JSON object.

python connector.py [GROUP ...]     the sliding window of each KV-cache group, 0 for full attention
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

CONNECTOR = {
    "kv_connector": "PellucidObserver",
    "kv_role": "kv_producer",
    "kv_connector_module_path": "pellucid.attach.connector",
}


def main() -> None:
    from vllm.config import KVTransferConfig

    from attach.stub import Options

    os.environ |= Options(groups=tuple(map(int, sys.argv[1:])) or (0,)).environment
    runs = [run(), run(kv_transfer_config=KVTransferConfig(**CONNECTOR))]
    print(json.dumps({"without": runs[0], "with": runs[1]}))


def run(**options: Any) -> dict[str, Any]:
    """Every table after every step, the outputs, and what was seen by whoever observed."""
    from attach.stub.engine import add, make_engine, prompts

    with tempfile.TemporaryDirectory() as folder:
        engine = make_engine(Path(folder), **options)
        scheduler = engine.engine_core.engine_core.scheduler
        add(engine, prompts())
        served = vars(scheduler).get("pellucid")
        if served:
            served.publisher.publish = lambda _, __, violations=(): wrong.extend(violations)
        tables, outputs, wrong = [], {}, []
        while engine.has_unfinished_requests():
            for output in engine.step():
                outputs[output.request_id] = list(output.outputs[0].token_ids)
            held = [scheduler.kv_cache_manager.get_block_ids(name) for name in scheduler.requests]
            tables.append([list(map(list, each)) for each in held])
    seen: dict[str, Any] = {"tables": tables, "outputs": outputs}
    if served:
        mirror = served.observer.mirror
        seen["observed"] = {"stopped": served.observer.stopped, "wrong": wrong, "names": sorted(mirror.ended)}
        seen["observed"] |= {"steps": mirror.step, "held": mirror.taken - mirror.returned}
    return seen


if __name__ == "__main__":
    main()
