"""Snapshots made by hand, and reading a drawn map back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rich.text import Text

from pellucid.kv.snapshot import GroupView, PoolView, RequestView, Snapshot
from pellucid.kv.table import RequestStatus


def snapshot(
    total: int,
    tables: Mapping[str, Sequence[int]],
    *,
    cached: Sequence[int] = (),
    fenced: Sequence[int] = (),
    owners: Mapping[int, int] | None = None,
    block_size: int = 16,
) -> Snapshot:
    """A snapshot of ``total`` blocks; ``owners`` overrides what the tables say."""
    counts = [sum(block in table for table in tables.values()) for block in range(total)]
    for block, count in (owners or {}).items():
        counts[block] = count
    reclaimable = [block for block in range(1, total) if not counts[block] and block not in fenced]
    pool = PoolView(
        name="kv",
        block_size=block_size,
        reuse_policy="free-first",
        owners=tuple(counts),
        identities=tuple(b"x" if block in cached else None for block in range(total)),
        fences=tuple(1 if block in fenced else 0 for block in range(total)),
        reuse_order=tuple(reclaimable),
        taken=0,
        returned=0,
    )
    requests = [
        RequestView(
            name=name,
            status=RequestStatus.RUNNING if table else RequestStatus.WAITING,
            tokens=len(table) * block_size,
            slots=max(0, len(table) * block_size - 3),
            tables=(tuple(table),),
            cached_tokens=0,
            preemptions=0,
        )
        for name, table in tables.items()
    ]
    return Snapshot(
        step=1,
        acts=0,
        prefix_caching=True,
        groups=(GroupView("full attention", block_size),),
        pools=(pool,),
        requests=tuple(requests),
        launched=(),
        hits={},
        missed={},
        evictions=0,
    )


def cells(lines: Sequence[Text]) -> str:
    """The marks of a drawn block map, without ruler, labels and gaps."""
    rows = [line.plain.split() for line in lines if line.plain.strip() and not line.plain.startswith("one cell")]
    return "".join("".join(row[1:]) for row in rows[1:])
