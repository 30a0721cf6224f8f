"""What every benchmark prints: figures with their targets, then one JSON object with the machine and the date."""

from __future__ import annotations

import datetime
import json
import math
import os
import platform
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple


class Figure(NamedTuple):
    """One number; ``target`` is the most it may be, or for a rate (a unit "per second") the least.

    ``runs`` are the single measurements of which ``value`` is the median, where there were several.
    """

    name: str
    value: float
    unit: str
    target: float | None = None
    runs: tuple[float, ...] = ()

    @property
    def met(self) -> bool | None:
        if self.target is None:
            return None
        return self.value >= self.target if self.unit.endswith("/s") else self.value <= self.target

    def as_json(self) -> dict[str, Any]:
        fields = {"value": round(self.value, 4), "unit": self.unit, "target": self.target, "met": self.met}
        return fields | ({"runs": [round(run, 4) for run in self.runs]} if self.runs else {})


def median_interval(values: Sequence[float], sure: float = 0.95) -> tuple[float, float]:
    """Between which of ``values`` the median of their source lies, as surely as ``sure``; all of them if few.

    By the binomial distribution of how many of them lie below that median.
    """
    ranked, count = sorted(values), len(values)
    below, chance = 0, 0.5**count
    while chance <= (1 - sure) / 2:
        below += 1
        chance += math.comb(count, below) / 2**count
    return ranked[max(0, below - 1)], ranked[min(count - 1, count - below)]


def show(figure: Figure) -> None:
    target = "" if figure.target is None else f"   target {figure.target:,g}: {'met' if figure.met else 'MISSED'}"
    print(f"{figure.name:28} {figure.value:14,.4f} {figure.unit:9}{target}", flush=True)


def cpu_model() -> str:
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    named = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return named[0] if named else platform.processor() or platform.machine()


def cores() -> int:
    """The cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def load() -> float:
    """The load average of the last minute: other work on the machine, and the benchmark's own."""
    return round(os.getloadavg()[0], 2)


def print_json(benchmark: str, figures: Iterable[Figure], **facts: Any) -> None:
    report = {
        "benchmark": benchmark,
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "python": platform.python_version(),
        "cpu": cpu_model(),
        "cores": cores(),
        "load": load(),
        **facts,
        "figures": {figure.name: figure.as_json() for figure in figures},
    }
    print(json.dumps(report))
