"""How fast can this machine read memory? The floor under every decoding step, which reads all weights once.

All threads of torch sum one large tensor, which nothing may keep in a cache; the best of several passes.
With ``--copy DEVICE`` a tensor is copied there instead (`gpu.py` holds its steps against that), and what was read and
what was written both count. The last line printed is one JSON object.

    python benchmarks/bandwidth.py [--mib 1024] [--threads N] [--copy cuda]
"""

from __future__ import annotations

import argparse
import time

import torch

from report import Figure, cores, print_json, show

PASSES = 10


def measure(mib: int) -> Figure:
    values = torch.ones(mib * 2**20 // 8, dtype=torch.float64)
    rates = []
    for _ in range(PASSES):
        start = time.perf_counter()
        values.sum()
        rates.append(values.nbytes / 1e9 / (time.perf_counter() - start))
    return Figure("bandwidth", max(rates), "GB/s", runs=tuple(rates))


def measure_copy(device: torch.device, mib: int) -> Figure:
    source = torch.ones(mib * 2**20, dtype=torch.uint8, device=device)
    target = torch.empty_like(source)
    rates = []
    for _ in range(PASSES):
        wait_for(device)
        start = time.perf_counter()
        target.copy_(source)
        wait_for(device)
        rates.append(2 * source.nbytes / 1e9 / (time.perf_counter() - start))
    return Figure("copy_bandwidth", max(rates), "GB/s", runs=tuple(rates))


def wait_for(device: torch.device) -> None:
    """Until ``device`` has done what it was given."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--mib", type=int, default=1024, help="how much to read, many times the caches (default 1024)")
    parser.add_argument("--threads", type=int, default=cores(), help="threads (default: the cores)")
    parser.add_argument("--copy", metavar="DEVICE", help="copy on this device instead")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    figure = measure_copy(torch.device(options.copy), options.mib) if options.copy else measure(options.mib)
    show(figure)
    print_json("bandwidth", [figure], threads=torch.get_num_threads(), mib=options.mib)


if __name__ == "__main__":
    main()
