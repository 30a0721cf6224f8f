"""What does the journal cost a model that runs? Throughput with it and without it, in turn, in one process.

The engine has no switch for its journal, for everything that can be observed is a fold over it. Here two
engines share their weights, and in one of them acts are neither built nor kept (`without_journal`), which
makes that engine blind and is done nowhere else. Pairs of runs follow each other, the order changing from
pair to pair; ``journal_cost`` is the median over the pairs of what the journal takes from the throughput.
On a busy machine single pairs differ by far more than the journal costs, so it is also taken directly:
``journal_share`` is the time to build and append the acts of one run again, as a share of that run.

The last line printed is one JSON object with every figure and its target.

    python benchmarks/journal.py [--model smollm2-135m] [--pairs 7]
"""

from __future__ import annotations

import argparse
import random
import statistics
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace

import torch
from rich.console import Console
from rich.progress import Progress

from pellucid import LLM, SamplingParams
from pellucid.kv import acts, manager
from report import Figure, cores, load, print_json, show
from scheduler import append_again

TARGET = 1.0  # % of throughput

KEPT = (acts.Lookup,)
"""Acts that the accounting itself reads (the counters of hits and misses)."""


@contextmanager
def without_journal(llm: LLM) -> Iterator[None]:
    """Inside, the manager's acts are not built and ``llm``'s journal keeps nothing. The journal is worthless then."""

    def nothing(*fields: object) -> None:
        return None

    journal = llm.kv.journal
    append, named = journal.append, vars(acts)
    unbuilt = {
        name: nothing
        for name, kind in named.items()
        if isinstance(kind, type) and issubclass(kind, acts.Act) and kind not in KEPT
    }
    manager.acts = SimpleNamespace(**(named | unbuilt))
    journal.append = nothing
    try:
        yield
    finally:
        manager.acts, journal.append = acts, append


class Load:
    """The same number of new random prompts for every run."""

    def __init__(self, options: argparse.Namespace, vocab_size: int) -> None:
        self._options, self._vocab_size = options, vocab_size
        self._random = random.Random(options.seed)
        self._params = SamplingParams(temperature=0, max_tokens=options.output, ignore_eos=True)

    def rate(self, llm: LLM) -> float:
        """Output tokens per second of one run."""
        options, vocab_size = self._options, self._vocab_size
        prompts = [[self._random.randrange(vocab_size) for _ in range(options.prompt)] for _ in range(options.requests)]
        start = time.perf_counter()
        outputs = llm.generate(prompts, self._params, use_tqdm=False)
        seconds = time.perf_counter() - start
        return sum(len(output.outputs[0].token_ids) for output in outputs) / seconds


def measure(options: argparse.Namespace) -> list[Figure]:
    seeing = LLM(options.model, dtype=options.dtype, skip_tokenizer_init=True)
    blind = LLM(seeing.loaded, skip_tokenizer_init=True)
    work = Load(options, seeing.loaded.config.vocab_size)
    on, off = [], []

    def run_on() -> None:
        on.append(work.rate(seeing))

    def run_off() -> None:
        with without_journal(blind):
            off.append(work.rate(blind))

    with without_journal(blind):
        work.rate(blind)
    work.rate(seeing)
    before = len(seeing.kv.journal)
    console = Console(stderr=True)
    with Progress(console=console, transient=True, disable=not console.is_terminal) as bar:
        for pair in bar.track(range(options.pairs), description="pairs"):
            for run in (run_on, run_off) if pair % 2 else (run_off, run_on):
                run()
    return figures(options, on, off, append_again(seeing.kv.journal.since(before)))


def figures(options: argparse.Namespace, on: list[float], off: list[float], appending: float) -> list[Figure]:
    costs = tuple(100 * (1 - a / b) for a, b in zip(on, off, strict=True))
    running = sum(options.requests * options.output / rate for rate in on)
    return [
        Figure("journal_on", statistics.median(on), "tokens/s", runs=tuple(on)),
        Figure("journal_off", statistics.median(off), "tokens/s", runs=tuple(off)),
        Figure("journal_cost", statistics.median(costs), "%", TARGET, costs),
        Figure("journal_share", 100 * appending / running, "%", TARGET),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default="smollm2-135m")
    parser.add_argument("--dtype", default="bfloat16")
    for name, default in (("pairs", 7), ("requests", 32), ("prompt", 128), ("output", 128)):
        parser.add_argument(f"--{name}", type=int, default=default, help=f"default {default}")
    parser.add_argument("--seed", type=int, default=20261129)
    options = parser.parse_args()
    torch.set_num_threads(cores())
    before = load()
    measured = measure(options)
    for figure in measured:
        show(figure)
    work = {key: getattr(options, key) for key in ("model", "dtype", "pairs", "requests", "prompt", "output")}
    print_json("journal", measured, **work, load_before=before, threads=torch.get_num_threads())


if __name__ == "__main__":
    main()
