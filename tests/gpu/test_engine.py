"""The engine for a GPU, whole: made by `LLM`, run by `DeviceRunner`, let go of."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator
from typing import Any

import pytest
import torch

from pellucid import LLM, SamplingParams
from pellucid.kv.journal import first_difference
from pellucid.runtime.device_runner import DeviceRunner

SMALL: dict[str, Any] = {
    "dtype": "float32",
    "num_gpu_blocks_override": 12,
    "block_size": 4,
    "max_num_seqs": 2,
    "max_num_batched_tokens": 16,
    "async_scheduling": True,
}
ON_CPU: dict[str, Any] = {"device": "cpu", "kernels": "torch", "attention_backend": "reference"}
IN_TRITON: dict[str, Any] = {"kernels": "triton", "attention_backend": "triton"}


@pytest.mark.parametrize("lazy", [False, True])
def test_text_and_journal_are_those_of_the_cpu(device: torch.device, lazy: bool) -> None:
    """A block moves while a step is in flight; one request is in its prompt while the other decodes."""
    if lazy and device.type == "cpu":
        pytest.skip("graphs are of the card")
    engines = [LLM("tiny", **SMALL, **ON_CPU), LLM("tiny", **SMALL, **IN_TRITON, device=str(device), lazy_graphs=lazy)]
    assert isinstance(engines[1]._core.executor, DeviceRunner)
    texts = [talk(llm) for llm in engines]
    assert texts[0] == texts[1]
    assert first_difference(engines[0].kv.journal, engines[1].kv.journal) is None


def talk(llm: LLM) -> dict[str, list[int]]:
    """What each of two requests comes to."""
    texts = {}
    llm.add_request("early", [7, 8, 9, 10, 11], SamplingParams(temperature=0, max_tokens=4))
    llm.step()
    llm.move_block(llm.kv.table("early")[0], 11)
    llm.add_request("late", list(range(7, 30)), SamplingParams(temperature=1, seed=4, max_tokens=2))
    while llm.has_unfinished_requests():
        for output in llm.step():
            texts[output.request_id] = output.outputs[0].token_ids
    return texts


@pytest.fixture
def no_collector() -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@pytest.mark.usefixtures("no_collector")
def test_an_engine_let_go_of_gives_its_memory_back(device: torch.device) -> None:
    """At once, not when the garbage collector comes: the lab makes one engine after the other."""
    llm = LLM("tiny", **SMALL, **IN_TRITON, device=str(device))
    talk(llm)
    parts = [weakref.ref(part) for part in (llm._core.executor, llm._core.executor._storage)]
    assert None not in [part() for part in parts]
    del llm
    assert [part() for part in parts] == [None, None]
