"""What `gpu.py` and `vllm_gpu.py` printed, side by side, with Pellucid's figure over vLLM's.

A line that came several times counts with its median. The last line printed is one JSON object.

    python benchmarks/gpu_ratios.py PELLUCID_LOG,… VLLM_LOG,…
"""

from __future__ import annotations

import json
import statistics
import sys
from pathlib import Path

FIGURES = {
    "start": ("first_token", "s"),
    "throughput": ("out_tok_s", "tokens/s"),
    "decode": ("ms_per_step", "ms"),
    "ttft": ("ms", "ms"),
    "longdecode": ("ms_per_step", "ms"),
    "prefill": ("tok_s", "tokens/s"),
}
"""By the word that begins a line: which of its facts is compared, and that one's unit."""
WHICH = {"bs": "bs", "ctx": "ctx", "n": "tokens"}
"""Facts that tell lines of one word apart."""


def figures(paths: str) -> dict[tuple[str, str], float]:
    """(name, unit) to value, of all the logs of one engine."""
    found: dict[tuple[str, str], list[float]] = {}
    for path in paths.split(","):
        for line in Path(path).read_text().splitlines():
            word, _, rest = line.partition(" ")
            if word in FIGURES and rest.startswith("{"):
                facts = json.loads(rest)
                key, unit = FIGURES[word]
                which = "".join(f" {label} {facts[fact]}" for fact, label in WHICH.items() if fact in facts)
                found.setdefault((word + which, unit), []).append(facts[key])
    return {name: statistics.median(values) for name, values in found.items()}


def main() -> None:
    if len(sys.argv) != 3:
        raise SystemExit(__doc__)
    ours, theirs = map(figures, sys.argv[1:])
    ratios = {}
    print(f"{'':26} {'Pellucid':>12} {'vLLM':>12}            Pellucid / vLLM")
    for (name, unit), value in ours.items():
        if other := theirs.get((name, unit)):
            ratios[name] = round(value / other, 3)
            print(f"{name:26} {value:12,.3f} {other:12,.3f} {unit:9} {ratios[name]:16.3f}")
    print(json.dumps({"benchmark": "gpu_ratios", "ratios": ratios}))


if __name__ == "__main__":
    main()
