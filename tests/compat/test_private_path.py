"""The attributes that scripts reach into: live, by internal id, and no more than there is."""

from __future__ import annotations

import re
from typing import Any

import pytest

START = """
from vllm import LLM, SamplingParams
llm = LLM("tiny", num_gpu_blocks_override=20, max_model_len=128, enable_prefix_caching=CACHING)
engine = llm.llm_engine
scheduler = engine.engine_core.engine_core.scheduler
kv = scheduler.kv_cache_manager
manager = kv.coordinator.single_type_managers[0]
tables = manager.req_to_blocks
pool = kv.block_pool
def add(name, length, most, **more):
    params = SamplingParams(temperature=0, max_tokens=most, ignore_eos=True)
    return engine.add_request(name, {"prompt_token_ids": list(range(1, length + 1))}, params, **more)
"""


@pytest.fixture
def peek(play: Any) -> Any:
    """Run lines after ``START``; returns what they print, line by line."""

    def run(lines: str, caching: bool = False) -> list[str]:
        ran = play(START.replace("CACHING", str(caching)) + lines)
        assert ran.status == 0, ran.err
        return ran.out.splitlines()

    return run


def test_the_tail_is_eight_hex_characters_and_stays_until_the_name_is_used_again(peek: Any) -> None:
    first, seen, later, again = peek(
        """
print(add("R1", 20, 3))
engine.step()
print(*tables)
engine.step()
print(*tables)
while engine.has_unfinished_requests():
    engine.step()
print(add("R1", 20, 3))
"""
    )
    assert re.fullmatch(r"R1-[0-9a-f]{8}", first)
    assert first == seen == later != again
    assert re.fullmatch(r"R1-[0-9a-f]{8}", again)


def test_only_requests_that_hold_blocks_are_in_the_table(peek: Any) -> None:
    lines = peek(
        """
one, two = add("A", 100, 2), add("B", 100, 2)  # 7 blocks each
add("C", 100, 2)                               # does not fit beside them
print(len(tables), one in tables)
engine.step()
print(list(tables) == [one, two], [len(blocks) for blocks in tables.values()])
print([b.block_id for b in tables[one]], [b.block_id for b in tables.get(two)])
print(kv.get_block_ids(one), kv.get_blocks(two).get_block_ids()[0][-1], kv.get_block_ids("A"))
"""
    )
    assert lines == [
        "0 False",
        "True [7, 7]",
        "[1, 2, 3, 4, 5, 6, 7] [8, 9, 10, 11, 12, 13, 14]",
        "([1, 2, 3, 4, 5, 6, 7],) 14 ([],)",
    ]


def test_max_tokens_two_is_there_after_two_steps_and_gone_after_three(peek: Any) -> None:
    assert peek(
        """
add("R1", 20, 2)
for _ in range(3):
    print([output.outputs[0].token_ids.__len__() for output in engine.step()], len(tables))
"""
    ) == ["[] 1", "[1] 1", "[2] 0"]


def test_asking_for_a_missing_id_creates_nothing(peek: Any) -> None:
    assert peek('print(tables["nobody"], tables.get("nobody"), "nobody" in tables, len(tables), dict(tables))') == [
        "[] None False 0 {}"
    ]


def test_the_table_cannot_be_written_to(play: Any) -> None:
    ran = play(START.replace("CACHING", "False") + 'tables["A"] = []')
    assert ran.status == 1
    assert "TypeError: 'RequestBlocks' object does not support item assignment" in ran.err


def test_the_pool_is_live(peek: Any) -> None:
    assert peek(
        """
print(pool.num_gpu_blocks, len(pool.blocks), pool.get_num_free_blocks(), pool.get_usage())
print(pool.null_block.block_id, pool.null_block.is_null, pool.blocks[1].is_null)
print([b.block_id for b in pool.free_block_queue.get_all_free_blocks()][:3], pool.free_block_queue.num_free_blocks)
add("A", 100, 20)
engine.step()
block = tables[next(iter(tables))][0]
print(block, block is pool.blocks[1], block.block_hash, pool.get_num_free_blocks(), round(kv.usage * 19, 6))
while engine.has_unfinished_requests():
    engine.step()
print(block.ref_cnt, pool.get_num_free_blocks())
"""
    ) == [
        "20 20 19 0.0",
        "0 True False",
        "[1, 2, 3] 19",
        "KVCacheBlock(block_id=1, ref_cnt=1, is_null=False) True None 12 7.0",
        "0 19",
    ]


def test_shared_blocks_have_two_owners_and_a_hash(peek: Any) -> None:
    assert peek(
        """
one, two = add("A", 40, 9), add("B", 40, 9)
engine.step()
print([b.ref_cnt for b in tables[one]], [b.block_id for b in tables[two]])
print([b.block_hash is not None for b in tables[one]], len(tables[one][0].block_hash))
""",
        caching=True,
    ) == ["[2, 2, 1] [1, 2, 4]", "[True, True, False] 32"]


def test_queues_and_requests_go_by_internal_id(peek: Any) -> None:
    assert peek(
        """
a, b, c = add("A", 100, 2), add("B", 100, 2), add("C", 100, 2)
engine.step()
print([r.request_id for r in scheduler.running] == [a, b], [r.request_id for r in scheduler.waiting] == [c])
print(scheduler.get_num_unfinished_requests(), engine.get_num_unfinished_requests())
request = scheduler.requests[b]
print(request.num_prompt_tokens, request.num_computed_tokens, request.num_output_tokens, request.status.name)
engine.step()
print(request.num_computed_tokens, request.num_output_tokens, request.num_tokens, request.num_preemptions)
"""
    ) == ["True True", "3 3", "100 100 0 RUNNING", "101 1 101 0"]


def test_requests_are_aborted_by_name_or_internal_id_and_ended_ones_are_passed_over(peek: Any) -> None:
    assert peek(
        """
a, b = add("A", 20, 9), add("B", 20, 9)
engine.step()
engine.abort_request(["A", b, "nobody"])
engine.abort_request([a, "B"])
engine.step()
print(len(tables), engine.has_unfinished_requests(), pool.get_num_free_blocks())
"""
    ) == ["0 False 19"]


def test_the_configuration_can_be_read(peek: Any) -> None:
    assert peek(
        """
config = engine.vllm_config
cache, plan, model = config.cache_config, config.scheduler_config, config.model_config
print(cache.block_size, cache.num_gpu_blocks, cache.enable_prefix_caching, cache.gpu_memory_utilization)
print(plan.max_num_seqs, plan.max_num_batched_tokens, plan.max_model_len, plan.async_scheduling)
print(model.max_model_len, engine.model_config.model, model.get_vocab_size())
"""
    ) == ["16 20 False 0.9", "128 2048 128 True", "128 tiny 260"]


@pytest.mark.parametrize(
    ("reached", "name"),
    [
        ("llm.beam_search", "llm.beam_search"),
        ("engine.output_processor", "llm.llm_engine.output_processor"),
        ("scheduler.policy", "llm.llm_engine.engine_core.engine_core.scheduler.policy"),
        ("kv.prefix_cache_stats", "scheduler.kv_cache_manager.prefix_cache_stats"),
        ("manager.num_cached_block", "coordinator.single_type_managers[0].num_cached_block"),
        ("pool.blocks[1].prev_free_block", "block_pool.blocks[i].prev_free_block"),
        ("engine.vllm_config.lora_config", "llm.llm_engine.vllm_config.lora_config"),
        ("engine.vllm_config.cache_config.swap_space", "llm.llm_engine.vllm_config.cache_config.swap_space"),
    ],
)
def test_an_attribute_that_is_not_there_is_named_with_its_path(play: Any, reached: str, name: str) -> None:
    ran = play(START.replace("CACHING", "False") + reached)
    assert ran.status == 1
    assert f"{name} is not covered by `pellucid run`; covered there: " in ran.err
    assert "Traceback" not in ran.err
