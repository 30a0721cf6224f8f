"""What does the journal cost a model that runs? The same engine, its journal on in one step and off in the next.

The engine has no switch for its journal, for everything that can be observed is a fold over it. Here acts are
neither built nor kept in every other step (`Switch`), which makes the engine blind and is done nowhere
else. Neighbouring steps of one batch that decodes run in the same memory and the same moment, which two runs, let
alone two engines, do not: ``journal_cost`` is the median over all pairs of neighbours of what the journal adds,
as a share of a step; the order changes from pair to pair. ``low`` and ``high`` bound that median (95 %, by the
order of the pairs' sizes). It is also taken directly: ``journal_share`` is the time to build and append the acts of
the steps that had a journal again, as a share of those steps.

The last line printed is one JSON object with every figure and its target.

    python benchmarks/journal.py [--model smollm2-135m] [--batches 8]
"""

from __future__ import annotations

import argparse
import random
import statistics
import time
from collections.abc import Iterator
from itertools import count
from types import SimpleNamespace

import torch
from rich.console import Console
from rich.progress import Progress

from pellucid import LLM, SamplingParams
from pellucid.engine.collector import undisturbed
from pellucid.kv import acts, manager
from report import Figure, cores, load, median_interval, print_json, show
from scheduler import append_again

TARGET = 1.0  # % of throughput

KEPT = (acts.Lookup,)
"""Acts that the accounting itself reads (the counters of hits and misses)."""


class Switch:
    """Whether acts of ``llm`` are built and kept. With it off, its journal is worthless from then on.

    Either way costs the same: on a card, a step that is timed is shorter by what the host did before it.
    """

    def __init__(self, llm: LLM) -> None:
        self._journal, self._append = llm.kv.journal, llm.kv.journal.append
        named = vars(acts)
        unbuilt = {
            name: self._nothing
            for name, kind in named.items()
            if isinstance(kind, type) and issubclass(kind, acts.Act) and kind not in KEPT
        }
        self._blind = SimpleNamespace(**(named | unbuilt))

    def turn(self, on: bool) -> None:
        manager.acts, self._journal.append = (acts, self._append) if on else (self._blind, self._nothing)

    @staticmethod
    def _nothing(*fields: object) -> None:
        return None


def prompts(options: argparse.Namespace, vocab_size: int) -> Iterator[dict[str, list[int]]]:
    """A batch of new random prompts, by name, again and again."""
    draw = random.Random(options.seed)
    for batch in count():
        yield {
            f"{batch}.{i}": [draw.randrange(vocab_size) for _ in range(options.prompt)] for i in range(options.requests)
        }


class Pairs:
    """Milliseconds of neighbouring steps, one of each kind, in which every request of a batch decodes."""

    def __init__(self, llm: LLM) -> None:
        self._llm = llm
        self.on: list[float] = []
        self.off: list[float] = []

    def run(self, batch: dict[str, list[int]], output: int) -> None:
        llm = self._llm
        params = SamplingParams(temperature=0, max_tokens=output, ignore_eos=True)
        for name, prompt in batch.items():
            llm.add_request(name, {"prompt_token_ids": prompt}, params)
        while any(request.slots < len(batch[request.name]) for request in llm.kv.snapshot().requests):
            llm.step()
        switch = Switch(llm)
        try:
            with undisturbed():
                for pair in range((output - 4) // 2):  # nobody comes or goes in these
                    for journal in (True, False) if pair % 2 else (False, True):
                        switch.turn(journal)
                        (self.on if journal else self.off).append(self._step())
        finally:
            switch.turn(True)
        while llm.has_unfinished_requests():
            llm.step()

    def _step(self) -> float:
        start = time.perf_counter()
        self._llm.step()
        return 1e3 * (time.perf_counter() - start)


def measure(options: argparse.Namespace) -> list[Figure]:
    llm = LLM(options.model, dtype=options.dtype, skip_tokenizer_init=True, journal_capacity=None)
    batches = prompts(options, llm.loaded.config.vocab_size)
    Pairs(llm).run(next(batches), options.output)
    pairs, before = Pairs(llm), len(llm.kv.journal)
    console = Console(stderr=True)
    with Progress(console=console, transient=True, disable=not console.is_terminal) as bar:
        for _ in bar.track(range(options.batches), description="batches"):
            pairs.run(next(batches), options.output)
    # Seconds for the acts of all steps, of which every other had a journal.
    appending = append_again(llm.kv.journal.since(before))
    return [*costs(pairs), Figure("journal_share", 100 * 1e3 * appending / sum(pairs.on), "%", TARGET)]


def costs(pairs: Pairs) -> list[Figure]:
    step = statistics.median(pairs.off)
    costs = [100 * (on - off) / step for on, off in zip(pairs.on, pairs.off, strict=True)]
    low, high = median_interval(costs)
    return [
        Figure("step_on", statistics.median(pairs.on), "ms"),
        Figure("step_off", step, "ms"),
        Figure("pairs", len(costs), "pairs"),
        Figure("journal_cost", statistics.median(costs), "%", TARGET),
        Figure("journal_cost_low", low, "%"),
        Figure("journal_cost_high", high, "%", TARGET),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default="smollm2-135m")
    parser.add_argument("--dtype", default="bfloat16")
    for name, default in (("batches", 8), ("requests", 32), ("prompt", 128), ("output", 128)):
        parser.add_argument(f"--{name}", type=int, default=default, help=f"default {default}")
    parser.add_argument("--seed", type=int, default=20261129)
    options = parser.parse_args()
    torch.set_num_threads(cores())
    before = load()
    measured = measure(options)
    for figure in measured:
        show(figure)
    work = {key: getattr(options, key) for key in ("model", "dtype", "batches", "requests", "prompt", "output")}
    print_json("journal", measured, **work, load_before=before, threads=torch.get_num_threads())


if __name__ == "__main__":
    main()
