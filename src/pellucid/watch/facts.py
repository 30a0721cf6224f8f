"""What is watched, for a program: the same as is drawn, as plain data."""

from __future__ import annotations

import json
import sys
from collections import Counter
from typing import Any

from msgspec import to_builtins

from pellucid.kv.block import BlockState
from pellucid.kv.snapshot import Snapshot
from pellucid.watch.rows import waste
from pellucid.watch.scene import Scene


def facts(scene: Scene) -> dict[str, Any]:
    """One JSON object. ``rate`` is in steps a second, ``time`` is Unix time; what is not known is null."""
    snapshot = scene.snapshot
    return {
        "watched": to_builtins(scene.watched),
        "step": snapshot.step,
        "time": scene.time,
        "rate": scene.rate,
        "totals": totals(snapshot),
        "groups": to_builtins(snapshot.groups),
        "requests": [
            {
                "name": request.name,
                "state": request.status,
                "known_tokens": request.tokens,
                "tokens": request.slots,
                "blocks": len(request.held),
                "waste": waste(request, snapshot.groups),
                "cached_tokens": request.cached_tokens,
                "preemptions": request.preemptions,
                "tables": request.tables,
            }
            for request in snapshot.requests
        ],
        "prefix_caching": snapshot.prefix_caching,
        "hits": to_builtins(snapshot.hits, str_keys=True),
        "missed": to_builtins(snapshot.missed, str_keys=True),
        "evictions": snapshot.evictions,
        "violations": scene.violations,
        "dropped": scene.dropped,
        "ended": scene.ended,
        "notes": scene.notes,
    }


def print_facts(scene: Scene) -> None:
    """`facts` on a line of stdout, at once."""
    sys.stdout.write(json.dumps(facts(scene)) + "\n")
    sys.stdout.flush()


def totals(snapshot: Snapshot) -> dict[str, int]:
    """Blocks by state, and slots: those of held blocks, and those of them that hold no token."""
    pool = snapshot.pool
    count = Counter(pool.states)
    return {
        "blocks": pool.total,
        "usable": pool.usable,
        **{state.value: count[state] for state in BlockState},
        "block_size": pool.block_size,
        "wasted_slots": snapshot.waste,
    }
