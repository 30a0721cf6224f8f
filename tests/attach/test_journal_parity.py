"""The same requests on our engine, told to re-use blocks as vLLM does, and on the real one: the same journal.

Act for act, in order: steps, names, blocks, reasons of misses, plans, and who gave way to whom. One thing is not
compared as it stands: identities are hashes, ours SHA-256 over framed tokens and vLLM's over what it has serialised,
and namespaces are made of them. Of those only the pattern must agree: where the same one appears again
(`first_difference` does so for every journal that was saved). vLLM itself does not tell when it takes a hash back
from a block (`Unpublish`), or for whom a victim had to give way; both follow from its plans, and agree here.
"""

from __future__ import annotations

from typing import Any

import pytest

import vllm_traces
from attach.conftest import Replayed
from pellucid import LLM, SamplingParams
from pellucid.kv.journal import Journal, first_difference
from pellucid.model import LoadedModel, load

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]

OPTIONS = ("block_size", "num_gpu_blocks_override", "max_model_len", "enable_prefix_caching", "watermark")


@pytest.fixture(scope="module")
def smollm2() -> LoadedModel:
    return load("smollm2-135m", dtype="float32", kernels="torch")


def run(model: LoadedModel, trace: dict[str, Any]) -> Journal:
    """The requests of ``trace`` on our engine."""
    options = {name: trace["engine"][name] for name in OPTIONS if name in trace["engine"]}
    options |= {name: trace["defaults"][name] for name in ("max_num_batched_tokens", "max_num_seqs")}
    policy = trace["defaults"]["policy"]
    llm = LLM(model, reuse_policy="vllm-0.24", scheduling_policy=policy, journal_capacity=None, **options)
    requests = {spec["tag"]: spec for spec in trace["requests"]}
    for recorded in trace["steps"]:
        for tag in recorded.get("add", ()):
            spec = requests[tag]
            sampling = SamplingParams(temperature=0, max_tokens=spec["max_tokens"], ignore_eos=spec["ignore_eos"])
            llm.add_request(tag, {"prompt_token_ids": spec["prompt"]}, sampling, priority=spec["priority"])
        for tag in recorded.get("abort", ()):
            llm.abort_request(tag)
        llm.step()
    return llm.kv.journal


@pytest.mark.parametrize("name", vllm_traces.NAMES)
def test_our_journal_is_the_one_observed(replayed: Replayed, smollm2: LoadedModel, name: str) -> None:
    ours = run(smollm2, vllm_traces.load(name))
    theirs = Journal.load(replayed.journals / f"{name}.jsonl")
    assert first_difference(ours, theirs) is None
