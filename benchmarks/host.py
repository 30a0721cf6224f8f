"""What does the host do for a step? `LLM.generate` with all but the model: its answers are made up, and there at once.

A device that needs half a millisecond for a step is kept busy only by a host that needs less. Here 1, 64 and 256
requests decode through `LLM.generate`, asynchronously as on a GPU, over blocks of 16 with the prefix cache on: prompts
are staggered, so that in every step one request in 16 takes a block and fills one. A `ForcedRunner` stands in for the
runner, with the same bookkeeping of rows. By part, in microseconds a step, the median over all steps in which everybody
decodes and nobody comes or goes:

*schedule* and *commit* are the scheduler's, KV manager and journal included; *launch* and *collect* the executor's
bookkeeping; *note* is what `LLM` keeps for its callers; *glue* is the rest of a turn: the core loop, the wait of
interrupts, the turns of `generate`. *step* is all of them. ``journal_off`` is the same without acts, in every other
step of the same batch (see `journal.py`); ``full_journal`` is another batch, whose journal is at its capacity and folds
old acts away: median, mean and p99 of whole steps.

The clock itself is in the figures: a dozen readings a step, about a microsecond in all.

The last line printed is one JSON object with every figure and its target.

    python benchmarks/host.py [--requests 1 64 256] [--steps 1000]
"""

from __future__ import annotations

import argparse
import random
import statistics
import time
from collections.abc import Callable, Iterator
from typing import Any

from journal import Switch
from pellucid import LLM, SamplingParams
from pellucid.runtime.forced import ForcedRunner
from report import Figure, load, print_json, show

BLOCK_SIZE = 16
PROMPT = 100
WARM_UP = 100
FULL = 256  # acts: a journal of this capacity folds from the beginning
PARTS = ("schedule", "launch", "collect", "commit", "note", "glue", "step")
TARGETS_US = {1: 80.0, 256: 1_200.0}


class Clock:
    """Seconds that each part took, turn by turn of ``llm``; ``pairs``: every other turn is without a journal."""

    def __init__(self, llm: LLM, *, pairs: bool) -> None:
        self._llm = llm
        self._pairs = pairs
        self._switch = Switch(llm)
        self._parts: dict[str, float] = {}
        self._ended = 0.0
        self.on: list[dict[str, float]] = []
        self.off: list[dict[str, float]] = []
        core = llm._core
        for owner, method, part in (
            (core.scheduler, "schedule", "schedule"),
            (core.executor, "launch", "launch"),
            (core.executor, "collect", "collect"),
            (core.scheduler, "commit", "commit"),
            (llm, "_note", "note"),
        ):
            setattr(owner, method, self._timed(getattr(owner, method), part))
        self._advance = llm._advance
        llm._advance = self._turn  # type: ignore[method-assign]

    def _timed(self, method: Callable[[Any], Any], part: str) -> Callable[[Any], Any]:
        clock, parts = time.perf_counter, self._parts

        def timed(*arguments: Any) -> Any:
            start = clock()
            result = method(*arguments)
            parts[part] = clock() - start
            return result

        return timed

    def _turn(self, asynchronous: bool) -> Any:
        between = time.perf_counter() - self._ended  # what `generate` did since the last turn
        self._parts.clear()
        blind = self._pairs and len(self.on) > len(self.off)
        self._switch.turn(not blind)
        start = time.perf_counter()
        answer = self._advance(asynchronous)
        whole = time.perf_counter() - start + between
        self._switch.turn(True)
        glue = whole - sum(self._parts.values())
        (self.off if blind else self.on).append(self._parts | {"glue": glue, "step": whole})
        self._ended = time.perf_counter()
        return answer


def decode(requests: int, steps: int, seed: int, journal_capacity: int | None) -> Clock:
    """The clock of a batch that decodes for ``steps``; without a capacity every other step has no journal."""
    length = PROMPT + BLOCK_SIZE + WARM_UP + steps
    llm = LLM(
        "tiny",
        skip_tokenizer_init=True,
        max_model_len=length + 1,
        max_num_seqs=requests,
        max_num_batched_tokens=requests * length,
        num_gpu_blocks_override=requests * (length // BLOCK_SIZE + 1) + 1,
        journal_capacity=journal_capacity,
    )
    llm._core.executor = ForcedRunner(lambda name, index: 7)
    clock = Clock(llm, pairs=journal_capacity is None)
    draw, vocab_size = random.Random(seed), llm.loaded.config.vocab_size
    prompts = [
        {"prompt_token_ids": [draw.randrange(vocab_size) for _ in range(PROMPT + i % BLOCK_SIZE)]}
        for i in range(requests)
    ]
    params = SamplingParams(temperature=0, max_tokens=WARM_UP + steps, ignore_eos=True)
    llm.generate(prompts, params, use_tqdm=False)
    return clock


def steady(turns: list[dict[str, float]], part: str) -> list[float]:
    """Microseconds of ``part`` in the turns in which everybody decodes and nobody comes or goes."""
    return [1e6 * turn[part] for turn in turns[WARM_UP // 2 : -2]]


def measure(requests: int, steps: int, seed: int) -> Iterator[Figure]:
    clock = decode(requests, steps, seed, None)
    for way, turns in (("on", clock.on), ("off", clock.off)):
        for part in PARTS:
            target = TARGETS_US.get(requests) if part == "step" else None
            yield Figure(f"{requests}_journal_{way}_{part}", statistics.median(steady(turns, part)), "us", target)
    whole = steady(decode(requests, steps, seed, FULL).on, "step")
    yield Figure(f"{requests}_full_journal_median", statistics.median(whole), "us", TARGETS_US.get(requests))
    yield Figure(f"{requests}_full_journal_mean", statistics.fmean(whole), "us")
    yield Figure(f"{requests}_full_journal_p99", statistics.quantiles(whole, n=100)[-1], "us")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--requests", type=int, nargs="+", default=[1, 64, 256])
    parser.add_argument("--steps", type=int, default=1_000, help="default 1000")
    parser.add_argument("--seed", type=int, default=20261129)
    options = parser.parse_args()
    before = load()
    figures: list[Figure] = []
    for requests in options.requests:
        for figure in measure(requests, options.steps, options.seed):
            show(figure)
            figures.append(figure)
    print_json("host", figures, steps=options.steps, load_before=before)


if __name__ == "__main__":
    main()
