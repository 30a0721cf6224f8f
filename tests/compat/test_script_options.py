"""The keywords of ``vllm.LLM`` and ``vllm.SamplingParams``: handed on, idle and named, or refused and named."""

from __future__ import annotations

from typing import Any

import pytest

from pellucid import plan
from pellucid.compat import options, sampling
from pellucid.errors import NotCovered, RequestError


def ours(**given: Any) -> tuple[dict[str, Any], list[str]]:
    said: list[str] = []
    return options.ours("some/model", given, said.append), said


def test_options_of_ours_are_handed_on_and_scheduling_is_asynchronous() -> None:
    given = {"block_size": 8, "num_gpu_blocks_override": 80, "enable_prefix_caching": False, "max_model_len": 512}
    assert ours(**given) == ({"async_scheduling": True, **given}, [])


def test_none_means_the_default_and_a_script_may_switch_asynchronous_scheduling_off() -> None:
    assert ours(seed=None, max_model_len=None)[0] == {"async_scheduling": True}
    assert ours(async_scheduling=None)[0] == {"async_scheduling": True}
    assert ours(async_scheduling=False)[0] == {"async_scheduling": False}


def test_torch_types_are_taken_by_name() -> None:
    import torch

    assert ours(dtype=torch.bfloat16)[0]["dtype"] == ours(dtype="bfloat16")[0]["dtype"] == "bfloat16"


def test_idle_options_are_named_in_one_line() -> None:
    kept, said = ours(
        enforce_eager=True,
        disable_log_stats=False,
        swap_space=4,
        trust_remote_code=False,
        tensor_parallel_size=1,
        tokenizer="some/model",
        task="generate",
        hf_token="secret",
    )
    assert kept == {"async_scheduling": True, "enforce_eager": True}
    assert said == [
        "accepted, and changing nothing here: disable_log_stats, swap_space, trust_remote_code, "
        "tensor_parallel_size, tokenizer, task, hf_token."
    ]


def test_the_share_of_memory_is_handed_on_and_it_is_said_what_it_is_of() -> None:
    kept, said = ours(gpu_memory_utilization=0.35)
    assert kept["gpu_memory_utilization"] == 0.35
    assert said == ["gpu_memory_utilization=0.35 is of a GPU, as in vLLM; on a CPU it only bounds the KV pool."]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("tensor_parallel_size", 2),
        ("pipeline_parallel_size", 2),
        ("quantization", "awq"),
        ("speculative_config", {"num_speculative_tokens": 3}),
        ("enable_lora", True),
        ("trust_remote_code", True),
        ("kv_cache_dtype", "fp8"),
        ("tokenizer", "another/model"),
        ("enable_chunked_prefill", False),
        ("task", "embed"),
        ("hf_overrides", {"rope_theta": 1.0}),
    ],
)
def test_options_that_would_change_results_are_refused_by_name(name: str, value: object) -> None:
    with pytest.raises(NotCovered, match=f"option {name}=") as refused:
        ours(**{name: value})
    assert repr(value) in str(refused.value)


def test_a_refused_option_ends_the_script_before_anything_is_loaded(play: Any) -> None:
    ran = play('from vllm import LLM\nLLM("tiny", tensor_parallel_size=2)')
    assert ran.status == 1
    assert ran.err.endswith(
        "line 2: the engine option tensor_parallel_size=2 is not covered by `pellucid run`: "
        "it would change results. Leave it out, or run the script on vLLM.\n"
    )


def test_sampling_parameters_of_ours_are_handed_on() -> None:
    given = sampling.SamplingParams(temperature=0.5, top_k=-1, top_p=0.9, min_p=0.1, seed=7, max_tokens=None)
    assert sampling.ours(given) == plan.SamplingParams(
        temperature=0.5, top_k=-1, top_p=0.9, min_p=0.1, seed=7, max_tokens=None
    )
    assert sampling.ours(sampling.SamplingParams(stop_token_ids=[3], seed=-1)) == plan.SamplingParams(
        stop_token_ids=(3,)
    )
    assert sampling.ours(None) is None


def test_neutral_values_of_what_we_lack_are_accepted() -> None:
    neutral = sampling.SamplingParams(
        n=1, best_of=None, presence_penalty=0, repetition_penalty=1, stop=[], logprobs=None, detokenize=True,
        stop_token_ids=None, bad_words=None, logit_bias={}, include_stop_str_in_output=False,
        skip_reading_prefix_cache=None, output_kind=sampling.RequestOutputKind.CUMULATIVE,
    )  # fmt: skip
    assert sampling.ours(neutral) == plan.SamplingParams()
    assert sampling.ours([neutral, neutral.clone()]) == [plan.SamplingParams()] * 2


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("n", 2),
        ("stop", ["\n"]),
        ("stop", "end"),
        ("logprobs", 5),
        ("logprobs", 0),
        ("prompt_logprobs", 1),
        ("presence_penalty", 0.5),
        ("repetition_penalty", 1.1),
        ("structured_outputs", object()),
        ("detokenize", False),
        ("output_kind", sampling.RequestOutputKind.DELTA),
        ("logit_bias", {3: 1.0}),
        ("no_such_thing", 1),
    ],
)
def test_sampling_that_we_lack_is_refused_by_name(name: str, value: object) -> None:
    with pytest.raises(NotCovered, match=rf"SamplingParams\({name}="):
        sampling.SamplingParams(**{name: value})


def test_a_value_set_later_is_checked_when_it_is_used() -> None:
    params = sampling.SamplingParams()
    params.max_tokens = 5
    assert sampling.ours(params).max_tokens == 5
    params.stop = ["x"]
    with pytest.raises(NotCovered, match="stop="):
        sampling.ours(params)
    with pytest.raises(RequestError, match="temperature"):
        sampling.SamplingParams(temperature=-1)
