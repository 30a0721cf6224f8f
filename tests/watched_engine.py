"""A watched engine without a model, in a process of its own: told what to do on stdin, a line each.

``add NAME TOKENS OUTPUT``, ``abort NAME``, ``step N``, ``load N SEED`` (N steps of changing company), ``table NAME``,
``snapshot``, ``fork`` (a child that lives on), ``quit``. It answers each with a line.
"""

from __future__ import annotations

import os
import random
import sys
import time

import msgspec

from pellucid.engine.broadcast import Broadcast
from pellucid.engine.config import SchedulerConfig
from pellucid.engine.core import EngineCore
from pellucid.engine.scheduler import Scheduler
from pellucid.kv import KVManager
from pellucid.plan import Request, SamplingParams
from pellucid.runtime.forced import ForcedRunner


class ForcedEngine:
    """``broadcast`` tells of it; ``kv`` is its truth."""

    def __init__(self, num_blocks: int = 60, *, asynchronous: bool = False) -> None:
        self.kv = KVManager(num_blocks, 4, journal_capacity=500)
        self.broadcast = Broadcast(self.kv, "forced", show_identities=True)
        scheduler = Scheduler(self.kv, SchedulerConfig(max_model_len=200, max_num_batched_tokens=64))
        runner = ForcedRunner(lambda name, index: 7 + index)
        self.core = EngineCore(scheduler, runner, asynchronous=asynchronous, turn=self.broadcast)
        self._names = 0

    def add(self, name: str, tokens: int, output: int, first: int = 0) -> None:
        prompt = tuple(range(first, first + tokens))
        self.core.add(Request(name=name, prompt=prompt, sampling=SamplingParams(temperature=0, max_tokens=output)))

    def step(self, count: int = 1) -> None:
        for _ in range(count):
            self.core.step()

    def load(self, steps: int, draw: random.Random, pause: float = 0.0) -> None:
        """Requests come, share prefixes, are pre-empted and aborted, for ``steps`` steps."""
        for _ in range(steps):
            live = [table.name for table in self.kv.live_tables()]
            if len(live) < 12 and draw.random() < 0.5:
                self._names += 1
                self.add(f"r{self._names}", draw.randint(1, 60), draw.randint(1, 30), draw.choice((0, 1000, 2000)))
            if live and draw.random() < 0.05:
                self.core.abort(draw.choice(live))
            self.core.step()
            if pause:
                time.sleep(pause)


def obey(engine: ForcedEngine, words: list[str]) -> str:
    match words:
        case ["add", name, tokens, output]:
            engine.add(name, int(tokens), int(output))
        case ["abort", name]:
            engine.core.abort(name)
        case ["step", count]:
            engine.step(int(count))
        case ["load", count, seed]:
            engine.load(int(count), random.Random(int(seed)))
        case ["table", name]:
            return str(engine.kv.table(name))
        case ["snapshot"]:
            return msgspec.json.encode(engine.kv.snapshot()).decode()
        case ["fork"]:
            return str(_fork(engine))
        case ["quit"]:
            sys.exit(0)
    return "done"


def _fork(engine: ForcedEngine) -> int:
    """A child that takes a turn as an engine would, ends an interpreter's normal way, and leaves the socket alone."""
    pid = os.fork()
    if pid:
        return pid
    engine.add("child", 8, 3)
    engine.step(2)
    time.sleep(30)
    sys.exit(0)


if __name__ == "__main__":
    engine = ForcedEngine()
    print(engine.broadcast.publisher.path, flush=True)
    for line in sys.stdin:
        print(obey(engine, line.split()), flush=True)
