"""What being observed costs a real vLLM: output tokens per second, observed and not, in turn, on one engine.

    python benchmarks/observed_throughput.py MODEL [--batch 64] [--rounds 8] [--ways unwatched] [name=value ...]

with the interpreter of a vLLM's environment, Pellucid importable; ``name=value`` are vLLM's options in JSON. Observed
means as in a server with PELLUCID_OBSERVE=1: ``unwatched`` while nobody looks, ``watched`` with a watcher in another
process that reads every step. The engine core runs in this process, so that an observer can come and go. A watcher
that joins costs one picture of the whole pool, which comes before its run: ``picture`` is what making one takes vLLM's
thread, ``joining`` the time until a watcher has it. Rounds differ by far more than an observer costs, so neighbours are
compared: ``loss_*`` is the median over the rounds, with the 95 % interval of that median (by the binomial
distribution of its rank). The last line is one JSON object.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from report import Figure, median_interval, print_json, show

TARGET = 3.0  # % of throughput
WATCHER = """
import sys
from pellucid.stream.reader import connect
from pellucid.stream.messages import Picture
with connect(sys.argv[1], timeout=10) as reader:
    while not isinstance(reader.next(timeout=60), Picture):
        pass
    print("watching", flush=True)
    while True:
        reader.next(timeout=60)
"""


@contextmanager
def observed(scheduler: Any, watched: bool) -> Iterator[Any]:
    """The engine as the plugin leaves it; with a watcher if ``watched``."""
    from pellucid.attach.names import Names
    from pellucid.attach.served import Served

    served, watcher = Served(scheduler, Names()), None
    if watched:
        command = [sys.executable, "-c", WATCHER, str(served.publisher.path)]
        watcher = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        assert watcher.stdout is not None
        watcher.stdout.readline()
    try:
        yield served
    finally:
        if watcher is not None:
            watcher.kill()
            watcher.wait()
        served.observer.stop("the round is over")
        served.publisher.close()


class Rounds:
    """Rates of one engine, alone and observed in two ways, in an order that turns from round to round."""

    def __init__(self, llm: Any, given: argparse.Namespace) -> None:
        import vllm

        self._llm, self._given, self._draw = llm, given, random.Random(0)
        self._params = vllm.SamplingParams(temperature=0, ignore_eos=True, max_tokens=given.output, detokenize=False)
        self.rates: dict[str, list[float]] = {way: [] for way in ("alone", *given.ways)}
        self.own: dict[str, list[float]] = {way: [] for way in given.ways}
        self.pictures: list[float] = []
        self.joining: list[float] = []
        self.blocks = llm.llm_engine.engine_core.engine_core.scheduler.kv_cache_manager.block_pool.num_gpu_blocks

    def rate(self) -> float:
        """Output tokens per second of one batch."""
        batch, draw = self._given.batch, self._draw
        prompts = [
            {"prompt_token_ids": [draw.randrange(10, 40_000) for _ in range(self._given.prompt)]} for _ in range(batch)
        ]
        began = time.perf_counter()
        self._llm.generate(prompts, self._params, use_tqdm=False)
        return float(batch * self._given.output / (time.perf_counter() - began))

    def run(self, number: int) -> None:
        scheduler = self._llm.llm_engine.engine_core.engine_core.scheduler
        for way in list(self.rates) if number % 2 else list(self.rates)[::-1]:
            if way == "alone":
                self.rates[way].append(self.rate())
                continue
            began = time.perf_counter()
            with observed(scheduler, way == "watched") as served:
                if way == "watched":
                    self.joining.append(1e3 * (time.perf_counter() - began))
                self.rates[way].append(self.rate())
                assert served.observer.stopped is None, served.observer.stopped
                self.own[way].append(served.observer.nanoseconds / 1_000 / max(1, served.observer.mirror.step))
                began = time.perf_counter()
                served._picture()
                self.pictures.append(1e3 * (time.perf_counter() - began))

    def figures(self) -> Iterator[Figure]:
        for way, found in self.rates.items():
            yield Figure(f"tokens_{way}", statistics.median(found), "tokens/s", None, tuple(found))
        for way, own in self.own.items():
            pairs = zip(self.rates[way], self.rates["alone"], strict=True)
            losses = tuple(100 * (1 - with_it / without) for with_it, without in pairs)
            yield Figure(f"loss_{way}", statistics.median(losses), "%", TARGET, losses)
            low, high = median_interval(losses)
            yield Figure(f"loss_{way}_low", low, "%")
            yield Figure(f"loss_{way}_high", high, "%")
            yield Figure(f"observer_{way}", statistics.median(own), "us", None, tuple(own))
        if self.joining:
            yield Figure("joining", statistics.median(self.joining), "ms", None, tuple(self.joining))
        yield Figure("picture", statistics.median(self.pictures), "ms", None, tuple(self.pictures))
        yield Figure("blocks", self.blocks, "blocks")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    for name, default in (("batch", 64), ("rounds", 8), ("prompt", 128), ("output", 512)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--ways", nargs="+", choices=["unwatched", "watched"], default=["unwatched", "watched"])
    parser.add_argument("options", nargs="*", metavar="name=value")
    given = parser.parse_intermixed_args()
    os.environ.setdefault("VLLM_ENABLE_V1_MULTIPROCESSING", "0")
    import vllm

    options = {name: json.loads(value) for name, _, value in (each.partition("=") for each in given.options)}
    llm = vllm.LLM(given.model, skip_tokenizer_init=True, max_num_seqs=given.batch, **options)
    rounds = Rounds(llm, given)
    rounds.rate()
    for number in range(given.rounds):
        rounds.run(number)
    figures = list(rounds.figures())
    for figure in figures:
        show(figure)
    config = llm.llm_engine.vllm_config
    asynchronous, graphs = bool(config.scheduler_config.async_scheduling), not config.model_config.enforce_eager
    facts = {"vllm": vllm.__version__, "batch": given.batch, "asynchronous": asynchronous, "graphs": graphs}
    print_json("observed_throughput", figures, **facts)


if __name__ == "__main__":
    main()
