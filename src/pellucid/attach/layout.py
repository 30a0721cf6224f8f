"""What observing needs of a live vLLM scheduler: found on the object itself, and checked before anything is believed.

Nothing here goes by a version number. Every name was seen in vLLM 0.9.2 to 0.32.0; one that is missing or
means something else refuses the whole observation, with all that was found.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from inspect import signature
from typing import Any, NamedTuple

from pellucid.errors import NotObservable
from pellucid.kv.block import RESERVED_BLOCK
from pellucid.kv.fold import WINDOWS_IN_FRONT
from pellucid.kv.snapshot import FULL_ATTENTION, GroupView

SLIDING_WINDOW = "sliding window"

NEEDED: dict[str, tuple[str, ...]] = {
    "scheduler": (
        "requests",
        "running",
        "kv_cache_manager",
        "schedule",
        "update_from_output",
        "add_request",
        "finish_requests",
    ),
    "KV cache manager": ("block_pool", "get_block_ids", "free"),
    "block pool": ("blocks", "num_gpu_blocks", "null_block", "free_block_queue", "get_num_free_blocks", "free_blocks"),
    "free queue": ("get_all_free_blocks", "num_free_blocks"),
    "block": ("block_id", "ref_cnt", "block_hash", "is_null"),
}
"""The names that are read or wrapped, by the object that has them."""


class Finding(NamedTuple):
    """One thing looked for on a live vLLM: what, where, whether it is as it must be, and what was seen."""

    what: str
    route: str
    works: bool
    seen: str

    def __str__(self) -> str:
        return f"{'works' if self.works else 'NOT OBSERVABLE'}: {self.what} ({self.route}): {self.seen}"


class Layout:
    """The parts of one scheduler. Raises `NotObservable` unless every finding works."""

    def __init__(self, scheduler: Any) -> None:
        self.scheduler = scheduler
        self.findings = list(_findings(scheduler))
        refuse(self.findings)
        self.manager = scheduler.kv_cache_manager
        self.pool = self.manager.block_pool
        self.blocks: Sequence[Any] = self.pool.blocks
        self.groups = tuple(map(_group, _specs(self.manager, scheduler)))
        self.caching = bool(getattr(self.pool, "enable_caching", getattr(self.manager, "enable_caching", False)))
        self.plans_ahead = any(kind.__name__ == "AsyncScheduler" for kind in type(scheduler).__mro__)
        self.reuse_policy = _policy(self.pool, self.groups)

    def tables(self, request: str) -> tuple[tuple[int, ...], ...]:
        """The block tables of the request with this internal id, one for each KV group; empty while it waits."""
        tables = tuple(map(tuple, self.manager.get_block_ids(request)))
        return tables if len(tables) == len(self.groups) else ((),) * len(self.groups)

    def identity(self, block: int) -> bytes | None:
        """Under what the block is findable, its KV group included; None if it is not."""
        return identity(self.blocks[block].block_hash)

    def hashes(self, request: Any) -> list[bytes]:
        """The hashes of a request's known full blocks, as they would be in the first KV group."""
        known = getattr(request, "block_hashes", None)
        if known is None:  # before 0.10.2 the manager kept them
            known = getattr(self.manager, "req_to_block_hashes", {}).get(request.request_id, ())
        return [with_group(each, 0) for each in known]

    def reuse_order(self) -> tuple[int, ...]:
        """The free queue, front to back."""
        return tuple([block.block_id for block in self.pool.free_block_queue.get_all_free_blocks()])


def refuse(findings: Sequence[Finding]) -> None:
    """Raise `NotObservable` if any of ``findings`` does not work."""
    wrong = [finding for finding in findings if not finding.works]
    if wrong:
        raise NotObservable(
            f"this vLLM cannot be observed: {'; '.join(f'{each.what} ({each.route}): {each.seen}' for each in wrong)}. "
            "`pellucid doctor` tells all that was looked for.",
            tuple(map(str, findings)),
        )


def identity(block_hash: Any) -> bytes | None:
    """vLLM's hash of a block as bytes: they are bytes since 0.11.0, and named tuples before."""
    if block_hash is None or isinstance(block_hash, bytes):
        return block_hash
    return with_group(block_hash.block_hash, block_hash.group_id)


def with_group(block_hash: Any, group: int) -> bytes:
    """A block hash in KV group ``group``, as `identity` gives it."""
    value = getattr(block_hash, "hash_value", block_hash)
    if isinstance(value, int):
        value = value.to_bytes(32, "big", signed=True)
    return bytes(value) + group.to_bytes(4, "big")


def _findings(scheduler: Any) -> Iterator[Finding]:
    manager = getattr(scheduler, "kv_cache_manager", None)
    pool = getattr(manager, "block_pool", None)
    parts = {
        "scheduler": (scheduler, "scheduler"),
        "KV cache manager": (manager, "scheduler.kv_cache_manager"),
        "block pool": (pool, "kv_cache_manager.block_pool"),
        "free queue": (getattr(pool, "free_block_queue", None), "block_pool.free_block_queue"),
        "block": (getattr(pool, "null_block", None), "block_pool.null_block"),
    }
    named = [_names(what, part, route) for what, (part, route) in parts.items()]
    yield from named
    if all(finding.works for finding in named):
        yield from _meanings(scheduler, pool)


def _policy(pool: Any, groups: Sequence[GroupView]) -> str:
    """Where freed blocks without content go: to the back of the queue, or (0.24.0 and later) to its front.

    In 0.23.0 it is up to the caller of ``free_blocks``, and only sliding windows choose the front.
    """
    if not hasattr(pool.free_block_queue, "prepend_n"):
        return "vllm-0.23"
    if "prepend" not in signature(pool.free_blocks).parameters:
        return "vllm-0.24"
    return WINDOWS_IN_FRONT if any(group.kind == SLIDING_WINDOW for group in groups) else "vllm-0.23"


def _names(what: str, part: Any, route: str) -> Finding:
    missing = [name for name in NEEDED[what] if not hasattr(part, name)]
    if part is None:
        return Finding(what, route, False, "there is none")
    kind = f"{type(part).__module__}.{type(part).__qualname__}"
    if missing:
        return Finding(what, route, False, f"{kind} has no {', '.join(missing)}")
    return Finding(what, route, True, f"{kind} has {', '.join(NEEDED[what])}")


def _meanings(scheduler: Any, pool: Any) -> Iterator[Finding]:
    """The names are there; do they mean what they must?"""
    total, blocks = pool.num_gpu_blocks, pool.blocks
    sound = total > 1 and len(blocks) == total and all(block.block_id == i for i, block in enumerate(blocks))
    yield Finding("numbered blocks", "block_pool.blocks", sound, f"{len(blocks)} blocks where {total} are counted")
    null = pool.null_block
    seen = f"block {null.block_id}, is_null {null.is_null}, {null.ref_cnt} owners"
    yield Finding("null block", "block_pool.null_block", null.block_id == RESERVED_BLOCK and bool(null.is_null), seen)
    free, queued = pool.get_num_free_blocks(), [block.block_id for block in pool.free_block_queue.get_all_free_blocks()]
    sound = free == len(queued) == len(set(queued)) and RESERVED_BLOCK not in queued
    yield Finding("free queue", "free_block_queue.get_all_free_blocks()", sound, f"{len(queued)} where {free} are free")
    foreign = sum(getattr(block, "pool", None) not in (None, pool) for block in blocks)
    yield Finding("one pool", "block.pool", not foreign, f"{foreign} blocks belong to another pool")
    yield from _features(scheduler)


def _features(scheduler: Any) -> Iterator[Finding]:
    """What changes the meaning of a table or of a step, and is not followed."""
    specs = _specs(scheduler.kv_cache_manager, scheduler)
    kinds = [type(spec).__name__ for spec in specs]
    yield Finding("KV groups", "kv_cache_config.kv_cache_groups", bool(specs) and all(map(_known, specs)), str(kinds))
    drafts = getattr(scheduler, "num_spec_tokens", 0) or 0
    yield Finding("no speculative decoding", "scheduler.num_spec_tokens", not drafts, f"{drafts} draft tokens")
    connector = getattr(scheduler, "connector", None)
    harmless = connector is None or getattr(connector, "pellucid_observer", False)
    seen = "none" if connector is None else type(connector).__name__
    yield Finding("no foreign KV connector", "scheduler.connector", harmless, seen)
    deferred = bool(getattr(scheduler, "defer_block_free", False))
    yield Finding("blocks return at once", "scheduler.defer_block_free", not deferred, str(deferred))
    for name in ("dcp_world_size", "pcp_world_size"):
        size = getattr(scheduler, name, 1) or 1
        yield Finding("no context parallelism", f"scheduler.{name}", size == 1, str(size))


def _specs(manager: Any, scheduler: Any) -> list[Any]:
    config = getattr(manager, "kv_cache_config", None) or getattr(scheduler, "kv_cache_config", None)
    return [group.kv_cache_spec for group in getattr(config, "kv_cache_groups", ())]


def _known(spec: Any) -> bool:
    return _kind(spec) is not None


def _kind(spec: Any) -> str | None:
    ancestry = {kind.__name__ for kind in type(spec).__mro__}
    if "SlidingWindowSpec" in ancestry:
        return SLIDING_WINDOW
    return FULL_ATTENTION if "FullAttentionSpec" in ancestry else None


def _group(spec: Any) -> GroupView:
    kind = _kind(spec)
    assert kind is not None  # `_features` has refused every other
    window = getattr(spec, "sliding_window", None) if kind == SLIDING_WINDOW else None
    return GroupView(kind, spec.block_size, window)
