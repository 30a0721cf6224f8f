"""A snapshot in Prometheus's text format (version 0.0.4)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from pellucid.kv.acts import MissReason
from pellucid.kv.block import BlockState
from pellucid.kv.snapshot import PoolView, Snapshot
from pellucid.kv.table import RequestStatus

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

_Sample = tuple[Mapping[str, str], int]


def exposition(snapshot: Snapshot, violations: int = 0) -> str:
    """Every number of ``snapshot`` as a gauge or a counter; ``violations`` is what does not hold in it."""
    return "".join(
        [
            *_of_pools(snapshot.pools),
            *_of_requests(snapshot),
            *_of_prefixes(snapshot),
            _family("pellucid_step", "gauge", "Steps the engine has begun.", [({}, snapshot.step)]),
            _family("pellucid_violations", "gauge", "Invariants that do not hold now.", [({}, violations)]),
        ]
    )


def _of_pools(pools: tuple[PoolView, ...]) -> Iterable[str]:
    counts = [(pool.name, Counter(pool.states)) for pool in pools]
    states = [({"pool": name, "state": state}, count[state]) for name, count in counts for state in BlockState]
    yield _family("pellucid_blocks", "gauge", "Blocks of KV memory by state.", states)
    for name, kind, text, field in (
        ("blocks_size", "gauge", "Blocks of KV memory, reserved ones included.", "total"),
        ("blocks_usable", "gauge", "Blocks that requests can ever hold.", "usable"),
        ("block_size_tokens", "gauge", "Tokens in a block.", "block_size"),
        ("blocks_taken_total", "counter", "Times that a block got an owner.", "taken"),
        ("blocks_returned_total", "counter", "Times that an owner gave up a block.", "returned"),
    ):
        samples = [({"pool": pool.name}, getattr(pool, field)) for pool in pools]
        yield _family(f"pellucid_{name}", kind, text, samples)


def _of_requests(snapshot: Snapshot) -> Iterable[str]:
    statuses = [request.status for request in snapshot.requests]
    counts = [({"status": status}, statuses.count(status)) for status in RequestStatus]
    yield _family("pellucid_requests", "gauge", "Live requests by status.", counts)


def _of_prefixes(snapshot: Snapshot) -> Iterable[str]:
    for name, text, field in (
        ("lookups", "Admissions that asked the prefix index, by kind.", "requests"),
        ("tokens_asked", "Tokens asked of the prefix index, by kind of lookup.", "asked"),
        ("tokens_hit", "Tokens found in the prefix index, by kind of lookup.", "hit"),
    ):
        samples = [({"kind": kind}, getattr(count, field)) for kind, count in snapshot.hits.items()]
        yield _family(f"pellucid_prefix_{name}_total", "counter", text, samples)
    missed = [({"reason": reason}, snapshot.missed.get(reason, 0)) for reason in MissReason]
    yield _family(
        "pellucid_prefix_missed_tokens_total", "counter", "Tokens asked for and not found, by reason.", missed
    )
    evicted: list[_Sample] = [({}, snapshot.evictions)]
    yield _family("pellucid_evictions_total", "counter", "Blocks whose content was given up for room.", evicted)


def _family(name: str, kind: str, text: str, samples: Iterable[_Sample]) -> str:
    lines = [f"# HELP {name} {text}", f"# TYPE {name} {kind}"]
    lines += [f"{name}{_labels(labels)} {value}" for labels, value in samples]
    return "\n".join(lines) + "\n"


def _labels(labels: Mapping[str, str]) -> str:
    inside = ",".join(f'{name}="{_escape(value)}"' for name, value in labels.items())
    return f"{{{inside}}}" if inside else ""


def _escape(value: str) -> str:
    return value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
