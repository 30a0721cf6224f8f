"""The experiment this project grew out of, on a vLLM that plans ahead or not: which blocks does the newcomer get?

Argument: a model's folder; further ones ``name=value`` are vLLM's options in JSON. The last line is one JSON object.
"""

from __future__ import annotations

import json
import random
import sys
from typing import Any

from pellucid.attach import observe
from pellucid.errors import FinishedRequest


def run(model: str, caching: bool, options: dict[str, Any]) -> dict[str, Any]:
    """Three requests of 346 tokens fill most of 79 blocks of 16; the middle one ends, and one of 431 tokens comes."""
    from vllm import LLM, SamplingParams

    base = {"block_size": 16, "num_gpu_blocks_override": 80, "max_model_len": 1024, "skip_tokenizer_init": True}
    llm = LLM(model, **base | {"enable_prefix_caching": caching} | options)
    engine, kv = llm.llm_engine, observe(llm)
    draw = random.Random(0)

    def add(name: str, length: int, output: int) -> None:
        prompt = [draw.randrange(10, 40_000) for _ in range(length)]
        sampling = SamplingParams(temperature=0, max_tokens=output, ignore_eos=True, detokenize=False)
        engine.add_request(name, {"prompt_token_ids": prompt}, sampling)

    for name, output in (("R0", 400), ("R1", 2), ("R2", 400)):
        add(name, 346, output)
    lives, steps = True, 0
    while lives:
        engine.step()
        steps += 1
        try:
            hole = kv.table("R1")
        except FinishedRequest as gone:
            lives, hole = False, gone.table
    add("NEW", 431, 4)
    while not kv.table("NEW"):
        engine.step()
    folded = kv.journal.fold() == kv.snapshot()
    new = kv.table("NEW")
    result = {
        "asynchronous": bool(engine.vllm_config.scheduler_config.async_scheduling),
        "caching": caching,
        "hole": hole,
        "gone after steps": steps,
        "NEW": new,
        "folds": folded,
        "violations": kv.violations,
        "stopped": kv.stopped,
    }
    kv.close()
    return result


def main() -> None:
    options = dict(argument.split("=", 1) for argument in sys.argv[2:])
    parsed = {name: json.loads(value) for name, value in options.items()}
    print(json.dumps([run(sys.argv[1], caching, parsed) for caching in (False, True)]))


if __name__ == "__main__":
    main()
