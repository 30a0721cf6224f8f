"""Block ids as people write them: ``67-79 44-31`` for a table that climbs and then descends."""

from __future__ import annotations

from collections.abc import Iterable


def runs(ids: Iterable[int]) -> str:
    """``ids`` in their order, neighbours that climb or descend by one joined: ``1-3 9 7-5``; "-" if there are none."""
    found: list[tuple[int, int]] = []
    for block in ids:
        if found and _continues(*found[-1], block):
            found[-1] = (found[-1][0], block)
        else:
            found.append((block, block))
    return " ".join(str(first) if first == last else f"{first}-{last}" for first, last in found) or "-"


def _continues(first: int, last: int, block: int) -> bool:
    step = block - last
    return abs(step) == 1 and (first == last or (last > first) == (step > 0))
