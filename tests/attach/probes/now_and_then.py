"""The traffic of `faithful`, listened to now and then, as a server is whose watchers come and go.

While nobody listens no acts are made; whoever listens again begins with a picture, and from there on the journal folds
to what vLLM's own objects say. Hits and misses come to what a listener from first to last is told.

Arguments: a seed, and how many requests. The last line is one JSON object.
"""

from __future__ import annotations

import json
import random
import sys
import tempfile
from pathlib import Path
from typing import Any

from attach.probes.faithful import Traffic
from attach.stub.engine import make_engine
from pellucid.attach.picture import picture
from pellucid.kv.journal import Journal


class NowAndThen(Traffic):
    """``turns`` counts how often somebody began to listen, ``unheard`` the steps of which nobody was told."""

    def __init__(self, engine: Any, seed: int) -> None:
        super().__init__(engine, seed)
        self.listening = True
        self.turns = self.unheard = 0
        self.whim = random.Random(seed)  # of its own, so that the traffic is that of a listener from first to last
        self.kv._observer._listens = lambda: self.listening

    def step(self) -> None:
        if self.whim.random() < 0.1:
            self.listening = not self.listening
            if self.listening:
                self.turns += 1
                observer = self.kv._observer
                self.kv.journal = Journal(picture(observer.layout, observer.mirror, 0))
        super().step()

    def check(self) -> None:
        if self.listening:
            super().check()
        else:
            self.unheard += 1

    def report(self) -> dict[str, Any]:
        return super().report() | {"turns": self.turns, "unheard": self.unheard}


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        traffic = NowAndThen(make_engine(Path(folder), disable_log_stats=True), int(sys.argv[1]))
        traffic.run(int(sys.argv[2]))
        print(json.dumps(traffic.report()))


if __name__ == "__main__":
    main()
