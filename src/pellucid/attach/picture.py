"""The whole accounting of a vLLM: tables and the free queue as its own objects have them.

What vLLM does not keep (blocks taken and returned so far, lookups, misses, evictions) is what was seen
since observing began.
"""

from __future__ import annotations

from typing import Any

from pellucid.attach.layout import Layout
from pellucid.attach.mirror import Mirror
from pellucid.attach.seen import Seen
from pellucid.kv.snapshot import PoolView, RequestView, Snapshot
from pellucid.kv.table import RequestStatus


def picture(layout: Layout, mirror: Mirror, acts: int, *, read_blocks: bool = True) -> Snapshot:
    """A snapshot after act number ``acts``, linear in the pool's size.

    Owners and hashes are read from vLLM's blocks, one by one, unless ``read_blocks`` is False: then they are those
    that were seen to become so, which takes a fifth of the time, and which `pellucid.attach.audit` compares in turn.
    """
    mirror.look()
    return Snapshot(
        step=mirror.told,
        acts=acts,
        prefix_caching=layout.caching,
        groups=layout.groups,
        pools=(_pool(layout, mirror, read_blocks),),
        requests=tuple([_request(request, layout, mirror) for request in layout.scheduler.requests.values()]),
        launched=tuple(mirror.launched),
        hits=dict(mirror.ledger.hits),
        missed=dict(mirror.ledger.missed),
        evictions=mirror.ledger.evictions,
    )


def _pool(layout: Layout, mirror: Mirror, read_blocks: bool) -> PoolView:
    blocks = layout.blocks
    if read_blocks:
        owners = tuple([0 if block.is_null else block.ref_cnt for block in blocks])
        identities = tuple([layout.identity(number) for number in range(len(blocks))])
    else:
        owners, identities = tuple(mirror.owners), tuple(mirror.contents)
    return PoolView(
        name="kv",
        block_size=layout.groups[0].block_size,
        reuse_policy=layout.reuse_policy,
        owners=owners,
        identities=identities,
        fences=(0,) * len(blocks),
        reuse_order=layout.reuse_order(),
        taken=mirror.taken,
        returned=mirror.returned,
    )


def _request(request: Any, layout: Layout, mirror: Mirror) -> RequestView:
    seen: Seen | None = mirror.requests.get(request.request_id)
    tables = layout.tables(request.request_id)
    return RequestView(
        name=seen.name if seen else request.request_id,
        status=_status(request, tables),
        tokens=request.num_tokens,
        slots=request.num_computed_tokens if any(tables) else 0,
        tables=tables,
        cached_tokens=seen.cached_tokens if seen else None,
        preemptions=seen.preemptions if seen else 0,
    )


def _status(request: Any, tables: tuple[tuple[int, ...], ...]) -> RequestStatus:
    """vLLM's states by name: RUNNING, PREEMPTED, and several kinds of waiting."""
    name = request.status.name
    if name == "RUNNING":
        return RequestStatus.RUNNING
    return RequestStatus.PREEMPTED if name == "PREEMPTED" else RequestStatus.WAITING
