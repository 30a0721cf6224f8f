"""What must be true of a vLLM scheduler before anything is believed: one thing is wrong at a time, and is named."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from pellucid.attach.finder import find
from pellucid.attach.layout import Layout
from pellucid.errors import NotObservable


class Queue:
    def __init__(self, blocks: list[Any]) -> None:
        self.blocks = blocks

    @property
    def num_free_blocks(self) -> int:
        return len(self.blocks)

    def get_all_free_blocks(self) -> list[Any]:
        return self.blocks

    def prepend_n(self, blocks: list[Any]) -> None:
        self.blocks[:0] = blocks


class FullAttentionSpec:
    block_size = 16


class SlidingWindowSpec:
    block_size = 16
    sliding_window = 64


class MambaSpec:
    block_size = 16


def scheduler() -> Any:
    """The shape of a vLLM scheduler of five blocks, as far as it is looked at."""
    blocks = [SimpleNamespace(block_id=i, ref_cnt=0, block_hash=None, is_null=i == 0, pool=None) for i in range(5)]
    pool = SimpleNamespace(
        blocks=blocks,
        num_gpu_blocks=5,
        null_block=blocks[0],
        free_block_queue=Queue(blocks[1:]),
        enable_caching=True,
        free_blocks=lambda ordered_blocks: None,
    )
    pool.get_num_free_blocks = lambda: len(pool.free_block_queue.blocks)
    groups = [SimpleNamespace(kv_cache_spec=FullAttentionSpec())]
    manager = SimpleNamespace(
        block_pool=pool,
        get_block_ids=lambda request: ([],),
        free=lambda request: None,
        kv_cache_config=SimpleNamespace(kv_cache_groups=groups),
    )
    calls = {name: lambda *_: None for name in ("schedule", "update_from_output", "add_request", "finish_requests")}
    return SimpleNamespace(
        requests={}, running=[], kv_cache_manager=manager, num_spec_tokens=0, connector=None, **calls
    )


def test_a_sound_one_is_taken_and_everything_found_is_told() -> None:
    layout = Layout(scheduler())
    assert layout.groups[0].block_size == 16
    assert layout.reuse_order() == (1, 2, 3, 4)
    assert all(finding.works for finding in layout.findings)
    assert len(layout.findings) == 15


def parts(scheduler: Any) -> dict[str, Any]:
    pool = scheduler.kv_cache_manager.block_pool
    return {
        "scheduler": scheduler,
        "manager": scheduler.kv_cache_manager,
        "pool": pool,
        "block": pool.null_block,
        "queue": pool.free_block_queue,
    }


@pytest.mark.parametrize(
    ("part", "name"),
    [
        ("scheduler", "kv_cache_manager"),
        ("scheduler", "requests"),
        ("scheduler", "update_from_output"),
        ("manager", "get_block_ids"),
        ("manager", "block_pool"),
        ("pool", "null_block"),
        ("pool", "free_block_queue"),
        ("block", "ref_cnt"),
        ("block", "is_null"),
    ],
)
def test_a_missing_name_refuses_everything_and_is_named(part: str, name: str) -> None:
    broken = scheduler()
    delattr(parts(broken)[part], name)
    with pytest.raises(NotObservable, match=name) as caught:
        Layout(broken)
    assert any("NOT OBSERVABLE" in finding for finding in caught.value.findings)


def renumber(s: Any) -> None:
    s.kv_cache_manager.block_pool.blocks[3].block_id = 4


def empty_pool(s: Any) -> None:
    pool = s.kv_cache_manager.block_pool
    pool.blocks, pool.num_gpu_blocks = pool.blocks[:1], 1
    pool.free_block_queue.blocks = []


def other_null_block(s: Any) -> None:
    s.kv_cache_manager.block_pool.null_block = s.kv_cache_manager.block_pool.blocks[1]


def queue_twice(s: Any) -> None:
    queue = s.kv_cache_manager.block_pool.free_block_queue
    queue.blocks = [*queue.blocks, queue.blocks[0]]


def miscount(s: Any) -> None:
    s.kv_cache_manager.block_pool.get_num_free_blocks = lambda: 3


def second_pool(s: Any) -> None:
    s.kv_cache_manager.block_pool.blocks[2].pool = object()


def state_space(s: Any) -> None:
    s.kv_cache_manager.kv_cache_config.kv_cache_groups.append(SimpleNamespace(kv_cache_spec=MambaSpec()))


def no_groups(s: Any) -> None:
    s.kv_cache_manager.kv_cache_config.kv_cache_groups.clear()


def drafts(s: Any) -> None:
    s.num_spec_tokens = 3


def connector(s: Any) -> None:
    s.connector = Queue([])


def deferred(s: Any) -> None:
    s.defer_block_free = True


def context_parallel(s: Any) -> None:
    s.dcp_world_size = 2


@pytest.mark.parametrize(
    ("spoil", "named"),
    [
        (renumber, "numbered blocks"),
        (empty_pool, "1 blocks where 1 are counted"),
        (other_null_block, "null block"),
        (queue_twice, "free queue"),
        (miscount, "4 where 3 are free"),
        (second_pool, "1 blocks belong to another pool"),
        (state_space, "MambaSpec"),
        (no_groups, "KV groups"),
        (drafts, "3 draft tokens"),
        (connector, "foreign KV connector"),
        (deferred, "blocks return at once"),
        (context_parallel, "context parallelism"),
    ],
)
def test_a_name_that_means_something_else_refuses_everything(spoil: Callable[[Any], None], named: str) -> None:
    broken = scheduler()
    spoil(broken)
    with pytest.raises(NotObservable, match=named):
        Layout(broken)


def test_our_own_connector_does_no_harm() -> None:
    watched = scheduler()
    watched.connector = SimpleNamespace(pellucid_observer=True)
    Layout(watched)


def test_a_sliding_window_is_a_group_of_its_own() -> None:
    hybrid = scheduler()
    hybrid.kv_cache_manager.kv_cache_config.kv_cache_groups.append(SimpleNamespace(kv_cache_spec=SlidingWindowSpec()))
    full, window = Layout(hybrid).groups
    assert (full.kind, full.window) == ("full attention", None)
    assert (window.kind, window.window) == ("sliding window", 64)


def test_the_order_of_reuse_goes_by_what_the_pool_can_do() -> None:
    """Up to 0.22 there is no `prepend_n`; in 0.23.0 the caller of `free_blocks` chose, and nobody chose the front."""
    assert Layout(scheduler()).reuse_policy == "vllm-0.24"
    chosen = scheduler()
    chosen.kv_cache_manager.block_pool.free_blocks = lambda ordered_blocks, prepend=False: None
    assert Layout(chosen).reuse_policy == "vllm-0.23"


@pytest.mark.parametrize(
    "route", [(), ("engine_core",), ("engine_core", "engine_core"), ("llm_engine", "engine_core", "engine_core")]
)
def test_the_scheduler_is_found_from_whatever_a_user_holds(route: tuple[str, ...]) -> None:
    sought = held = scheduler()
    for name in ("scheduler", *reversed(route)) if route else ():
        held = SimpleNamespace(**{name: held})
    assert find(held).scheduler is sought


class SyncMPClient:
    """The name of vLLM's client of an engine core in another process."""


def test_an_engine_core_in_another_process_is_said_to_be_there() -> None:
    llm = SimpleNamespace(llm_engine=SimpleNamespace(engine_core=SyncMPClient()))
    with pytest.raises(NotObservable, match=r"another process.*VLLM_ENABLE_V1_MULTIPROCESSING=0") as caught:
        find(llm)
    assert len(caught.value.findings) == 4


def test_anything_else_is_refused() -> None:
    with pytest.raises(NotObservable, match="give the LLM, its LLMEngine, or the scheduler itself"):
        find(object())
