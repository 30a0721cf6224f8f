"""A GPU's memory, as it is now and as some work needs it."""

from __future__ import annotations

from collections.abc import Callable

import torch

from pellucid.engine.budget import Card


def card_of(device: torch.device) -> Card:
    """The card behind ``device``. What torch keeps in this process for re-use counts as free, for an engine gets it."""
    free, total = torch.cuda.mem_get_info(device)
    kept = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
    return Card(torch.cuda.get_device_name(device), total, total - free - kept)


def peak_bytes(device: torch.device, work: Callable[[], object]) -> int:
    """Bytes that torch takes of the card for ``work`` at most, beyond what it holds now; ``work`` is waited for."""
    torch.cuda.synchronize(device)
    torch.cuda.empty_cache()
    before = torch.cuda.memory_reserved(device)
    torch.cuda.reset_peak_memory_stats(device)
    work()
    torch.cuda.synchronize(device)
    peak = torch.cuda.max_memory_reserved(device) - before
    torch.cuda.empty_cache()
    return peak
