"""vLLM on a GPU at the work of `gpu_work.py`: the same lines as `gpu.py`, then one JSON object.

It imports nothing of Pellucid, and is run by an interpreter that has vLLM. `compare_gpu.sh` runs both.

    python benchmarks/vllm_gpu.py benchmarks/shapes/smollm2-135m [--long 8192] [--eager]
"""

from __future__ import annotations

import argparse
import json
import os
import time
from pathlib import Path
from typing import Any

import gpu_work
from gpu_work import Line, Work, age
from report import print_json

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("VLLM_USE_FLASHINFER_SAMPLER", "0")  # it would be compiled when it is first used


class Vllm:
    def __init__(self, model: str, options: dict[str, Any]) -> None:
        from vllm import LLM, SamplingParams

        self._params = SamplingParams
        self._llm = LLM(model, **options)
        self.vocab_size = json.loads((Path(model) / "config.json").read_text())["vocab_size"]

    def prepare(self, work: Work) -> Any:
        fixed = {"temperature": work.temperature, "ignore_eos": True, "detokenize": False}
        prompts = [{"prompt_token_ids": prompt} for prompt in work.prompts]
        return prompts, [self._params(max_tokens=limit, **fixed) for limit in work.limits]

    def run(self, prepared: Any) -> int:
        outputs = self._llm.generate(*prepared, use_tqdm=False)
        return sum(len(output.outputs[0].token_ids) for output in outputs)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    gpu_work.short_options(parser)
    options = parser.parse_args()
    import vllm

    imported = age()
    begun = time.perf_counter()
    engine = Vllm(options.model, gpu_work.engine_options(options))
    print("startup_s", round(time.perf_counter() - begun, 1), flush=True)
    lines: list[Line] = [gpu_work.start(engine, imported, age()).show()]
    lines += gpu_work.measure_long(engine, options.long) if options.long else gpu_work.measure_short(engine, options)
    facts = {"model": options.model, "eager": options.eager, "long": options.long}
    print_json("vllm_gpu", [], **facts, vllm=vllm.__version__, lines=[[line.name, line.facts] for line in lines])


if __name__ == "__main__":  # vLLM's own processes import this file again
    main()
