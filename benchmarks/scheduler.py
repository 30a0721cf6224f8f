"""Is the accounting light? Times what Pellucid adds to a model: scheduling, commit and journal.

No model runs here; every result is a made-up token. Four things are measured:

*A step.* `Scheduler.schedule` plus `Scheduler.commit`, with the journal on at its default capacity
and the prefix cache on, for a steady batch of decoding requests. Prompt lengths are staggered, so
that in every step one request in 16 crosses into a new block: a `Take` and a `Publish` with its
SHA-256. `full_journal` is the same at 256 requests once the journal is at its capacity and folds its
oldest acts away, some at a time: median, mean (in which that is spread out) and longest step.

*The journal alone.* The acts of the measured steps are built from their fields and appended once
more, and nothing else. Appending is never off: this is a share of the step, not a saving to be had.

*Blocks.* One block taken and returned counts once; the best of several runs. Through
`BlockPool.take` and `give_back` with tables of 16; through `KVManager.open`, `match`, `admit`,
`close`, which adds names, tables and journal; and the same with the prefix cache on, which adds
hashing, publishing and evicting every block of an unknown prompt.

*Import.* The best of several fresh interpreters that `import pellucid`, less the best of those that
do nothing.

The last line printed is one JSON object with every figure and its target. Other work on the machine
shows first in p99 and the longest step, so the load average is given too.

    python benchmarks/scheduler.py
"""

from __future__ import annotations

import math
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence

import msgspec

from pellucid.engine.config import SchedulerConfig
from pellucid.engine.scheduler import Scheduler
from pellucid.kv import KVManager
from pellucid.kv.acts import AnyAct
from pellucid.kv.pool import BlockPool
from pellucid.plan import Request, SamplingParams, StepResult
from report import Figure, print_json, show

BLOCK_SIZE = 16
TABLE = 16  # blocks
WARM_UP, STEPS = 100, 1_000
TABLES = 4_000
REPEATS = 7
STEP_TARGET_MS = {64: 0.3, 128: None, 256: 1.0}


# -- a step ----------------------------------------------------------------------------------------


def decoding(requests: int, steps: int) -> Scheduler:
    """A scheduler whose pool lets ``requests`` decode for ``steps`` without pressure."""
    length = 100 + BLOCK_SIZE + steps
    kv = KVManager(requests * math.ceil(length / BLOCK_SIZE) + 1, BLOCK_SIZE)
    config = SchedulerConfig(max_model_len=length + 1, max_num_seqs=requests, max_num_batched_tokens=requests * length)
    scheduler = Scheduler(kv, config)
    for i in range(requests):
        prompt = tuple(range(i, i + 100 + i % BLOCK_SIZE))
        scheduler.add(Request(name=f"R{i}", prompt=prompt, sampling=SamplingParams(max_tokens=steps)))
    return scheduler


def step(scheduler: Scheduler) -> float:
    """One step with its result made up in between; seconds in the scheduler."""
    start = time.perf_counter()
    plan = scheduler.schedule()
    planned = time.perf_counter()
    result = StepResult(plan.step, (7,) * sum(plan.samples))
    answered = time.perf_counter()
    scheduler.commit(result)
    return time.perf_counter() - answered + planned - start


def measure_step(requests: int) -> list[Figure]:
    scheduler = decoding(requests, WARM_UP + STEPS)
    for _ in range(WARM_UP):
        step(scheduler)
    journal = scheduler.kv.journal
    before = len(journal)
    times = [1e3 * step(scheduler) for _ in range(STEPS)]
    acts = journal.since(before)
    appending = 1e3 * append_again(acts) / STEPS
    return [
        Figure(f"step_{requests}_median", statistics.median(times), "ms", STEP_TARGET_MS[requests]),
        Figure(f"step_{requests}_p99", statistics.quantiles(times, n=100)[-1], "ms"),
        Figure(f"step_{requests}_acts", len(acts) / STEPS, "acts"),
        Figure(f"step_{requests}_journal", appending, "ms"),
        Figure(f"step_{requests}_journal_share", 100 * appending / statistics.mean(times), "%"),
    ]


def append_again(acts: Sequence[AnyAct]) -> float:
    """Seconds to build equal acts from their fields and append them."""
    parts = [(type(act), msgspec.structs.astuple(act)) for act in acts]
    journal: list[AnyAct] = []
    append = journal.append
    start = time.perf_counter()
    for kind, fields in parts:
        append(kind(*fields))
    return time.perf_counter() - start


def measure_full_journal(requests: int) -> list[Figure]:
    """The same batch, so far on that the journal is at its capacity and folds old acts away as it goes."""
    steps = 5_000
    scheduler = decoding(requests, steps)
    filling = 0
    while not scheduler.kv.journal.folded:
        step(scheduler)
        filling += 1
    times = [1e3 * step(scheduler) for _ in range(min(STEPS, steps - filling - 1))]
    return [
        Figure(f"step_{requests}_full_journal_median", statistics.median(times), "ms", STEP_TARGET_MS[requests]),
        Figure(f"step_{requests}_full_journal_mean", statistics.mean(times), "ms"),
        Figure(f"step_{requests}_full_journal_max", max(times), "ms"),
    ]


# -- blocks ----------------------------------------------------------------------------------------


def pool_seconds() -> float:
    pool = BlockPool(TABLES * TABLE + 1)
    start = time.perf_counter()
    for _ in range(TABLES):
        blocks = pool.take(TABLE)
        blocks.reverse()
        pool.give_back(blocks)
    return time.perf_counter() - start


def manager_seconds(caching: bool) -> float:
    """Tables of 16 blocks, each of a prompt nobody has seen, in a pool that holds a quarter of them."""
    kv = KVManager(TABLES * TABLE // 4 + 1, BLOCK_SIZE, enable_prefix_caching=caching)
    prompts = [list(range(i, i + TABLE * BLOCK_SIZE)) for i in range(TABLES)]
    start = time.perf_counter()
    for prompt in prompts:
        kv.begin_step()
        table = kv.open("R", prompt)
        kv.admit(table, kv.match(table), len(prompt))
        kv.close(table, "length", None)
    return time.perf_counter() - start


def measure_blocks() -> list[Figure]:
    def rate(seconds: Callable[[], float]) -> float:
        return TABLES * TABLE / min(seconds() for _ in range(REPEATS))

    return [
        Figure("blocks_pool", rate(pool_seconds), "blocks/s", 1e6),
        Figure("blocks_manager", rate(lambda: manager_seconds(caching=False)), "blocks/s", 1e6),
        Figure("blocks_manager_caching", rate(lambda: manager_seconds(caching=True)), "blocks/s"),
    ]


# -- import ----------------------------------------------------------------------------------------


def fresh_interpreter(code: str) -> float:
    """Seconds of the fastest of several interpreters that run ``code``."""

    def once() -> float:
        start = time.perf_counter()
        subprocess.run([sys.executable, "-c", code], check=True)
        return time.perf_counter() - start

    return min(once() for _ in range(REPEATS))


def measure_import() -> list[Figure]:
    start_up = fresh_interpreter("pass")
    importing = fresh_interpreter("import pellucid, sys; assert 'torch' not in sys.modules")
    return [
        Figure("import_interpreter", start_up, "s"),
        Figure("import_pellucid", max(0.0, importing - start_up), "s", 0.15),
    ]


def main() -> None:
    figures: list[Figure] = []
    for requests in STEP_TARGET_MS:
        figures += measure_step(requests)
    figures += measure_full_journal(256)
    figures += measure_blocks()
    figures += measure_import()
    for figure in figures:
        show(figure)
    print_json("scheduler", figures)


if __name__ == "__main__":
    main()
