"""How fast is Pellucid on a GPU, what share of the card's bandwidth does a step reach, and where does its time go?

The work and its lines are those of `gpu_work.py`, which `vllm_gpu.py` runs as well; weights are made up, so a folder
with a config.json is enough (`shapes/` has three). Beside them:

*steps*: milliseconds of a single decoding step, context from ``--context`` tokens on, with as many requests as decode
has: median, p99, p99 as a multiple of the median. ``gb`` is what such a step has to read: every weight once (of an
embedding that is not the output matrix too, nothing) and the K and V of every context; ``share`` is that over the
median, in % of the bandwidth of a large copy on the same card, both directions counted (``copy``).

*kernels*: microseconds a step by group of kernels, as torch's profiler sees them over some steps, and the longest
kernels by name. Kernels may overlap, and the profiler costs time itself: shares are worth more than sums.

*journal*: what the journal adds to a step, as in `journal.py`: neighbouring steps with it and without.

The last line printed is one JSON object with every figure, its target where there is one (for the three shapes, on an
H200), and all lines.

    python benchmarks/gpu.py benchmarks/shapes/smollm2-135m [--long 8192] [--eager] [--parts start,short]
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.metadata
import itertools
import json
import statistics
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gpu_work
import pellucid
from gpu_work import Draw, Line, Work, age
from pellucid.engine.collector import undisturbed
from report import Figure, print_json, show

PARTS = ("start", "short", "steps", "kernels", "journal")
MEASURED, PROFILED, SETTLING = 200, 20, 4
"""Steps that are timed, steps that are profiled, and steps in which nothing is measured before either."""

TARGETS = {
    "smollm2-135m": {
        **{"decode_1": 0.50, "decode_8": 0.60, "decode_64": 1.0, "throughput": 70_000, "first_token": 15},
        **{"ttft_128": 3, "longdecode_32_7000": 1.9},
    },
    "qwen3-0.6b": {"decode_1": 0.90, "decode_8": 1.0, "decode_64": 1.6, "throughput": 30_000},
    "llama-8b": {
        **{"decode_1": 4.4, "decode_8": 4.6, "decode_64": 6.0, "throughput": 11_500},
        **{"ttft_4096": 100, "prefill": 42_000, "longdecode_8_30000": 12.0},
    },
}
SPREAD_TARGET = 1.5


class Pellucid:
    """The engine under test; ``extra`` are options of `pellucid.LLM` beside those that both engines get."""

    def __init__(self, model: str, options: dict[str, Any], extra: dict[str, Any]) -> None:
        from pellucid import LLM, SamplingParams

        self._params = SamplingParams
        self.llm = LLM(model, **(options | extra))
        self.vocab_size = self.llm.loaded.config.vocab_size

    def prepare(self, work: Work) -> Any:
        prompts = [{"prompt_token_ids": prompt} for prompt in work.prompts]
        return prompts, [self._sampling(limit, work.temperature) for limit in work.limits]

    def run(self, prepared: Any) -> int:
        outputs = self.llm.generate(*prepared, use_tqdm=False)
        return sum(len(output.outputs[0].token_ids) for output in outputs)

    def decoding(self, draw: Draw, batch: int, context: int, steps: int) -> Iterator[None]:
        """Let ``batch`` prompts of ``context`` tokens decode: yields once all do, and after each of ``steps`` steps.

        The first to have their prompt done go on while others are at theirs, and still run in the last step.
        """
        chunks = -(-batch * (context + 1) // self.llm.options.limits.tokens)
        work = draw.alike(batch, context, steps + 2 * (chunks + SETTLING))
        for number, (prompt, sampling) in enumerate(zip(*self.prepare(work), strict=True)):
            self.llm.add_request(f"request {number}", prompt, sampling)
        reached: set[str] = set()
        while len(reached) < batch:
            reached |= {output.request_id for output in self.llm.step()}
        for _ in range(SETTLING):
            self.llm.step()
        with undisturbed():
            yield
            for _ in range(steps):
                self.llm.step()
                yield
        while self.llm.has_unfinished_requests():
            self.llm.step()

    def _sampling(self, limit: int, temperature: float) -> Any:
        return self._params(temperature=temperature, max_tokens=limit, ignore_eos=True)


# -- what only this benchmark measures -------------------------------------------------------------


def steps(engine: Pellucid, draw: Draw, batch: int, context: int, copy: Figure) -> Line:
    stamps = [time.perf_counter() for _ in engine.decoding(draw, batch, context, MEASURED)]
    times = sorted(1e3 * (after - before) for before, after in itertools.pairwise(stamps))
    median, p99 = statistics.median(times), times[int(0.99 * len(times))]
    read = bytes_read(engine, batch, context + SETTLING + MEASURED // 2) / 1e9
    share = 100 * read / (median / 1e3) / copy.value
    facts = {"bs": batch, "ctx": context, "median_ms": median, "p99_ms": p99, "spread": p99 / median}
    return Line("steps", {name: round(value, 4) for name, value in {**facts, "gb": read, "share": share}.items()})


def bytes_read(engine: Pellucid, batch: int, context: int) -> int:
    """What a step that decodes ``batch`` requests of ``context`` tokens has to read."""
    loaded, pool = engine.llm.loaded, engine.llm.pool
    config, dtype = loaded.config, loaded.model.dtype
    unread = 0 if config.tie_embeddings else config.vocab_size * config.hidden_size * dtype.itemsize
    return loaded.model.weight_bytes - unread + batch * context * pool.block_bytes // engine.llm.options.block_size


def kernels(engine: Pellucid, draw: Draw, batch: int, context: int) -> Line:
    from gpu_kernels import by_group, profiled

    running = engine.decoding(draw, batch, context, PROFILED)
    spent = profiled(running, PROFILED, engine.llm.loaded.model.device)
    longest = {name[:80]: [round(us, 2), round(calls, 2)] for name, (us, calls) in list(spent.items())[:20]}
    groups = {name: round(us, 1) for name, us in by_group(spent).items()}
    return Line("kernels", {"bs": batch, "ctx": context, "us": groups, "longest": longest})


def journal(engine: Pellucid, draw: Draw, batch: int, output: int, batches: int) -> list[Figure]:
    from journal import Pairs, costs

    pairs = Pairs(engine.llm)
    for number in range(batches):
        pairs.run({f"{number}.{i}": draw.prompt(128) for i in range(batch)}, output)
    return costs(pairs)


# -- all of it -------------------------------------------------------------------------------------


def extra_lines(engine: Pellucid, options: argparse.Namespace) -> tuple[list[Line], list[Figure]]:
    """The parts that go on from the short work."""
    lines: list[Line] = []
    figures: list[Figure] = []
    if "steps" in options.parts:
        from bandwidth import measure_copy

        copy = measure_copy(engine.llm.loaded.model.device, options.copy_mib)
        figures.append(copy)
        draw = Draw(3, engine.vocab_size)
        lines += [steps(engine, draw, batch, options.context, copy).show() for batch in options.batches]
    if "kernels" in options.parts:
        draw = Draw(4, engine.vocab_size)
        lines += [kernels(engine, draw, batch, options.context).show() for batch in options.batches]
    if "journal" in options.parts:
        draw = Draw(5, engine.vocab_size)
        figures += journal(engine, draw, max(options.batches), options.journal_out, options.journal_batches)
    return lines, figures


def figures_of(lines: list[Line], model: str) -> list[Figure]:
    targets = TARGETS.get(model, {})
    found: list[Figure] = []

    def add(name: str, value: float, unit: str, target: float | None = None, runs: tuple[float, ...] = ()) -> None:
        found.append(Figure(name, value, unit, target or targets.get(name), runs))

    rates = tuple(line.facts["out_tok_s"] for line in lines if line.name == "throughput")
    if rates:
        add("throughput", statistics.median(rates), "tokens/s", runs=rates)
    for name, facts in lines:
        if name == "start":
            add("first_token", facts["first_token"], "s")
        elif name == "decode":
            add(f"decode_{facts['bs']}", facts["ms_per_step"], "ms")
        elif name == "steps":
            add(f"step_{facts['bs']}_median", facts["median_ms"], "ms")
            add(f"step_{facts['bs']}_spread", facts["spread"], "times", SPREAD_TARGET)
            add(f"step_{facts['bs']}_share", facts["share"], "%")
        elif name == "ttft":
            add(f"ttft_{facts['n']}", facts["ms"], "ms")
        elif name == "longdecode":
            add(f"longdecode_{facts['bs']}_{facts['ctx']}", facts["ms_per_step"], "ms")
        elif name == "prefill":
            add("prefill", facts["tok_s"], "tokens/s")
    return found


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    gpu_work.short_options(parser)
    parser.add_argument("--parts", type=lambda text: text.split(","), default=PARTS, help=f"some of {','.join(PARTS)}")
    parser.add_argument("--context", type=int, default=512, help="context of steps and kernels (default 512)")
    parser.add_argument("--copy-mib", type=int, default=2048, help="what the copy copies (default 2048)")
    parser.add_argument("--journal-batches", type=int, default=8, help="batches of journal (default 8)")
    parser.add_argument("--journal-out", type=int, default=128, help="output tokens of each (default 128)")
    parser.add_argument(
        "--option", metavar="NAME=JSON", action="append", default=[], help="one more option of pellucid.LLM"
    )
    options = parser.parse_args()
    if unknown := set(options.parts) - set(PARTS):
        parser.error(f"no such part: {', '.join(sorted(unknown))}; there are {', '.join(PARTS)}")
    return options


def extra_options(pairs: list[str]) -> dict[str, Any]:
    """``NAME=JSON``; what is no JSON is a string."""
    found: dict[str, Any] = {}
    for pair in pairs:
        name, _, text = pair.partition("=")
        found[name] = text
        with contextlib.suppress(json.JSONDecodeError):
            found[name] = json.loads(text)
    return found


def card_name(engine: Pellucid) -> str:
    import torch

    device = engine.llm.loaded.model.device
    return torch.cuda.get_device_name(device) if device.type == "cuda" else "none"


def main() -> None:
    options = parse()
    _ = pellucid.LLM  # what a script imports
    imported = age()
    begun = time.perf_counter()
    engine = Pellucid(options.model, gpu_work.engine_options(options), extra_options(options.option))
    print("startup_s", round(time.perf_counter() - begun, 1), flush=True)
    lines: list[Line] = []
    figures: list[Figure] = []
    if "start" in options.parts:
        lines.append(gpu_work.start(engine, imported, age()).show())
    if options.long:
        lines += gpu_work.measure_long(engine, options.long)
    else:
        if "short" in options.parts:
            lines += gpu_work.measure_short(engine, options)
        more, figures = extra_lines(engine, options)
        lines += more
    figures = figures_of(lines, Path(options.model).name) + figures
    for figure in figures:
        show(figure)
    versions = {"torch": importlib.metadata.version("torch"), "pellucid": pellucid.__version__}
    facts = {"card": card_name(engine), "model": options.model, "eager": options.eager, "long": options.long}
    print_json("gpu", figures, **facts, versions=versions, lines=[[line.name, line.facts] for line in lines])


if __name__ == "__main__":
    main()
