"""Where the time of a step goes on a GPU: kernels as torch's profiler sees them, and what each is for."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

import torch
from torch.profiler import ProfilerActivity, profile

from bandwidth import wait_for

GROUPS = (
    ("attention", r"attend|attention|attn|flash|plan_kernel|decode_kernel|prefill_kernel|write_kernel"),
    ("sampling", r"sampl|choose|search|keep_likely|noise|argmax|topk|sort|scan|softmax"),
    (
        "products",
        r"product|gated_kernel|scores_kernel|gemm|gemv|matmul|cutlass|cublas|nvjet|splitk|addmm|::mm|::linear",
    ),
    ("norms, rope and gates", r"norm|rope|rotat|angles_kernel|silu|gate_kernel|residual"),
    ("inputs", r"input|receive_kernel|rows_kernel|keep_kernel|embed|slot|table|position|arange|index|gather"),
    ("copies", r"memcpy|memset|copy|fill"),
)
"""The first group whose pattern is found in a kernel's name has it."""


def profiled(running: Iterator[None], steps: int, device: torch.device) -> dict[str, tuple[float, float]]:
    """Microseconds and calls a step by kernel (on a CPU, by torch's operation), the longest first.

    ``running`` yields when it is ready, and after each of ``steps`` steps.
    """
    on_card = device.type == "cuda"
    next(running)
    wait_for(device)
    with profile(activities=[ProfilerActivity.CUDA if on_card else ProfilerActivity.CPU]) as profiler:
        for _ in range(steps):
            next(running)
        wait_for(device)
    for _ in running:
        pass
    spent: dict[str, tuple[float, float]] = {}
    for event in profiler.key_averages():
        us = event.self_device_time_total if on_card else event.self_cpu_time_total
        if us > 0:
            spent[event.key] = (us / steps, event.count / steps)
    return dict(sorted(spent.items(), key=lambda item: -item[1][0]))


def by_group(spent: Mapping[str, tuple[float, float]]) -> dict[str, float]:
    """Microseconds a step by group, the longest first."""
    groups: dict[str, float] = {}
    for kernel, (us, _) in spent.items():
        groups[group(kernel)] = groups.get(group(kernel), 0.0) + us
    return dict(sorted(groups.items(), key=lambda item: -item[1]))


def group(kernel: str) -> str:
    for name, pattern in GROUPS:
        if re.search(pattern, kernel.lower()):
            return name
    return "other"
