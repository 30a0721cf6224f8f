"""A program of its own, as Triton interprets in the tests' process: the kernels that steps of a model would launch.

    python kernels_of_steps.py llama|qwen3

Prints a JSON object of sorted lists of kernels, each with Triton's key of the variant: what is left out where nothing
is compiled. "rehearsal" and "buckets" are what an engine can have compiled at its start, on a pool of one block, of the
whole model or of two of its layers alone; "served" is what the whole model launches for real plans, on a larger pool.
Where there is no card, kernels are those for an H200.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable

import torch
from absent_card import card

from pellucid.attention import KVStorage
from pellucid.attention.triton import TritonAttention
from pellucid.engine.rehearsal import rehearse
from pellucid.model.config import ModelConfig
from pellucid.model.llama import Model, tensor_shapes
from pellucid.model.weights import RandomWeights
from pellucid.ops.triton import TritonOps
from pellucid.plan import Admission, SamplingParams, StepPlan
from pellucid.runtime.compiling import left_out
from pellucid.runtime.device_runner import DeviceRunner

ROWS, TOKENS, LONGEST, BLOCK, NUM_BLOCKS = 4, 130, 96, 16, 26
DTYPE = torch.bfloat16


def three_layers(kind: str, device: torch.device) -> Model:
    config = ModelConfig(
        architecture="Qwen3ForCausalLM" if kind == "qwen3" else "LlamaForCausalLM",
        vocab_size=260, hidden_size=64, intermediate_size=128, num_layers=3, num_heads=4, num_kv_heads=2, head_dim=16,
        max_position=LONGEST, qk_norm=kind == "qwen3",
    )  # fmt: skip
    return Model(config, RandomWeights(tensor_shapes(config), 0), TritonOps(DTYPE), device)


def runner(model: Model, num_blocks: int) -> DeviceRunner:
    config = model.config
    shape = (config.num_layers, num_blocks, BLOCK, config.num_kv_heads, config.head_dim)
    return DeviceRunner(
        model,
        KVStorage(*shape, DTYPE, model.device),
        TritonAttention(),
        max_num_seqs=ROWS,
        max_num_batched_tokens=TOKENS,
        max_model_len=LONGEST,
        enforce_eager=True,
    )


def serve(runner: DeviceRunner) -> None:
    """Two prompts and a token more of each, then of one."""
    lengths = (70, 9)
    admitted = tuple(Admission(n, f"R{n}", (5,) * length, length, SamplingParams()) for n, length in enumerate(lengths))
    blocks = ((0, (7, 3, 4, 20, 9)), (1, (25,)))
    runner.launch(StepPlan(1, (), admitted, blocks, (), (0, 1), (0, 0), lengths, (True, True)))
    runner.launch(StepPlan(2, (), (), (), (), (0, 1), lengths, (1, 1), (True, True)))
    runner.collect(), runner.collect()
    runner.launch(StepPlan(3, (1,), (), (), (), (0,), (71,), (1,), (True,)))


def kernels(launch: Callable[[], object]) -> list[str]:
    return sorted(f"{kernel.__name__} {key}" for kernel, key in left_out(launch))


def main(kind: str) -> None:
    whole = three_layers(kind, card())
    found = {"served": kernels(lambda: serve(runner(whole, NUM_BLOCKS)))}
    for name, one in (("whole", whole), ("shallow", whole.shallow())):
        found[name + " rehearsal"] = kernels(lambda one=one: rehearse(one, TritonAttention(), BLOCK, TOKENS, ROWS))
        found[name + " buckets"] = kernels(runner(one, 1).every_step)
    print(json.dumps(found))


main(sys.argv[1])
