"""Random traffic on an observed vLLM: after every step its own objects say what the journal folds to.

Arguments: a seed, and how many requests. The last line is one JSON object.
"""

from __future__ import annotations

import json
import random
import sys
import tempfile
from pathlib import Path
from typing import Any

from attach.stub import Options
from attach.stub.engine import make_engine, sampling
from pellucid.attach import observe
from pellucid.kv.acts import LookupKind
from pellucid.kv.invariants import SNAPSHOT_CHECKS

SALTS = (None, None, "red", "blue")


class Traffic:
    """Requests that share prefixes, are salted, aborted and pre-empted, on one engine of 39 usable blocks."""

    def __init__(self, engine: Any, seed: int) -> None:
        self.engine = engine
        self.draw = random.Random(seed)
        self.kv = observe(engine)
        self.live: dict[str, str] = {}  # name -> the name to abort it by
        self.steps = self.aborts = self.resets = 0
        self.wrong: list[str] = []

    def add(self, number: int) -> None:
        name, salt = f"r{number}", self.draw.choice(SALTS)
        shared = self.draw.choice((0, 16, 40, 64))
        tokens = list(range(100, 100 + shared))
        tokens += [self.draw.randrange(5_000) for _ in range(self.draw.randrange(1, 90))]
        prompt: dict[str, Any] = {"prompt_token_ids": tokens}
        if salt:
            prompt["cache_salt"] = salt
        options = sampling()
        options.max_tokens = self.draw.randrange(1, 60)
        self.live[name] = self.engine.add_request(name, prompt, options) or name

    def abort(self) -> None:
        name = self.draw.choice(sorted(self.live))
        self.engine.abort_request([name])
        del self.live[name]
        self.aborts += 1

    def step(self) -> None:
        self.steps += 1
        for output in self.engine.step():
            if output.finished:
                self.live.pop(output.request_id, None)
        self.check()

    def check(self) -> None:
        seen, folded = self.kv.snapshot(), self.kv.journal.fold()
        wrong = [str(violation) for look in SNAPSHOT_CHECKS for violation in look(seen)]
        wrong += differences(seen, folded) + differences(seen.pool, folded.pool)
        self.wrong += [f"step {self.steps}: {each}" for each in wrong]

    def run(self, requests: int) -> None:
        number = 0
        while (number < requests or self.engine.has_unfinished_requests()) and not self.wrong:
            while number < requests and (not self.live or self.draw.random() < 0.4):
                self.add(number)
                number += 1
            if self.live and self.draw.random() < 0.04:
                self.abort()
                self.check()
            if self.draw.random() < 0.01 and self.engine.reset_prefix_cache():
                self.resets += 1
                self.check()
            if self.engine.has_unfinished_requests():
                self.step()

    def report(self) -> dict[str, Any]:
        import vllm

        snapshot = self.kv.snapshot()
        acts = [type(act).__name__.lower() for act in self.kv.journal]
        return {
            "version": vllm.__version__,
            "asynchronous": Options.read().asynchronous,
            "groups": len(snapshot.groups),
            "steps": self.steps,
            "aborts": self.aborts,
            "resets": self.resets,
            "acts": {kind: acts.count(kind) for kind in sorted(set(acts))},
            "hit": sum(count.hit for count in snapshot.hits.values()),
            "resumed": snapshot.hits[LookupKind.RESUME].requests if LookupKind.RESUME in snapshot.hits else 0,
            "missed": {str(reason): tokens for reason, tokens in snapshot.missed.items()},
            "held at the end": snapshot.pool.held,
            "microseconds a step": round(self.kv.microseconds_per_step, 1),
            "violations": list(self.kv.violations),
            "stopped": self.kv.stopped,
            "wrong": self.wrong[:5],
        }


def differences(seen: Any, told: Any) -> list[str]:
    """The fields of two snapshots, or pools, that differ, and where."""
    found = []
    for field in seen.__struct_fields__:
        left, right = getattr(seen, field), getattr(told, field)
        if left != right and field != "pools":
            if isinstance(left, tuple) and len(left) == len(right):
                pairs = [(i, *pair) for i, pair in enumerate(zip(left, right, strict=True)) if pair[0] != pair[1]]
                found.append(f"{field} (place, is, was told): {pairs}"[:500])
            else:
                found.append(f"{field}: {left} is, {right} was told"[:500])
    return found


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        traffic = Traffic(make_engine(Path(folder), disable_log_stats=True), int(sys.argv[1]))
        traffic.run(int(sys.argv[2]))
        print(json.dumps(traffic.report()))


if __name__ == "__main__":
    main()
