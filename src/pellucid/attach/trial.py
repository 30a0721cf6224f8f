"""A small vLLM in this process, to see whether it can be observed: ``python -m pellucid.attach.trial MODEL ARGS``.

A program of its own, as much can go wrong in starting a vLLM. The last line it prints is a JSON list of findings.
"""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Sequence
from typing import Any

from pellucid.attach.kv import ObservedKV, observe
from pellucid.attach.layout import Finding
from pellucid.errors import NotObservable

ENVIRONMENT = {"VLLM_ENABLE_V1_MULTIPROCESSING": "0", "VLLM_LOGGING_LEVEL": "ERROR", "VLLM_NO_USAGE_STATS": "1"}
"""What it needs where nothing else is set: the engine core in this process, which says only what is wrong."""

ARGUMENTS = ("--load-format=dummy", "--skip-tokenizer-init", "--enforce-eager", "--num-gpu-blocks-override=64")
"""What it is given where nothing else is: it computes with random weights, as nobody reads what it writes."""

NAME = "doctor"
STEPS = 3


def findings(model: str, args: Sequence[str]) -> list[str]:
    """All that was found on the live objects, and what one request showed."""
    engine = _engine(["--model", model, *ARGUMENTS, *args])
    try:
        kv = observe(engine)
    except NotObservable as error:
        return [*error.findings, str(Finding("observing", "pellucid.attach.observe", False, str(error)))]
    led_there = [str(finding) for finding in kv.findings if finding.works]  # routes are tried until one does
    return [*led_there, str(_one_request(engine, kv))]


def _engine(args: list[str]) -> Any:
    parser = importlib.import_module("vllm.engine.arg_utils").FlexibleArgumentParser()
    kind = importlib.import_module("vllm.engine.arg_utils").EngineArgs
    options = kind.from_cli_args(kind.add_cli_args(parser).parse_args(args))
    return importlib.import_module("vllm.v1.engine.llm_engine").LLMEngine.from_engine_args(options)


def _one_request(engine: Any, kv: ObservedKV) -> Finding:
    """What is shown of a request while it runs, and whether all of it added up."""
    sampling = importlib.import_module("vllm").SamplingParams
    engine.add_request(
        NAME, {"prompt_token_ids": [1, 2, 3]}, sampling(max_tokens=STEPS + 1, ignore_eos=True, detokenize=False)
    )
    for _ in range(STEPS):
        engine.step()
    tables = kv.tables(NAME)
    wrong = [*kv.violations, *([kv.stopped] if kv.stopped else [])]
    seen = f"after {STEPS} steps its tables are {tables}" + "".join(f"; {each}" for each in wrong)
    return Finding("a request", "llm.add_request, llm.step", any(tables) and not wrong, seen)


def main() -> None:
    found = findings(sys.argv[1], sys.argv[2:])
    print(json.dumps(found), flush=True)


if __name__ == "__main__":
    main()
