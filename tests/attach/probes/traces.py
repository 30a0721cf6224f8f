"""Plays the recorded runs once more on the real vLLM, observed; prints what differs, by trace, as one JSON object.

    traces.py MODEL FOLDER NAME...

MODEL is a Hugging Face folder in float32. The observed journal of each run goes to FOLDER/NAME.jsonl.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import vllm_traces
from pellucid.attach import ObservedKV, observe
from pellucid.kv.snapshot import Snapshot
from pellucid.lab.vllm_laboratory import VllmLaboratory

STATUS = {"running": "RUNNING", "waiting": "WAITING", "preempted": "PREEMPTED"}


def allow_blocks_of_16() -> None:
    """vLLM's attention on a CPU says that it takes multiples of 32; its kernels for 16 are there all the same."""
    from vllm.v1.attention.backend import MultipleOf
    from vllm.v1.attention.backends.cpu_attn import CPUAttentionBackend

    CPUAttentionBackend.get_supported_kernel_block_sizes = staticmethod(lambda *_: [MultipleOf(16)])


def play(laboratory: VllmLaboratory, trace: dict[str, Any], journal: Path) -> Iterator[str]:
    """What differs from ``trace``, step by step."""
    budget = {name: trace["defaults"][name] for name in ("max_num_batched_tokens", "max_num_seqs")}
    engine = laboratory.engine(**{**trace["engine"], **budget})
    kv = observe(engine, journal_capacity=None)
    if list(kv.snapshot().pool.reuse_order) != vllm_traces.ids(trace["initial"]["freeq"]):
        yield "the pool begins otherwise"
    outputs: dict[str, list[int]] = {tag: [] for tag in trace["results"]}
    for recorded in trace["steps"]:
        for tag in recorded.get("add", ()):
            add(engine, trace, tag)
        if aborted := recorded.get("abort", ()):
            engine.abort_request(list(aborted))
        for output in engine.step():
            outputs[output.request_id] = list(output.outputs[0].token_ids)
        yield from (f"step {recorded['step']}: {each}" for each in compare(kv, recorded))
    yield from (f"output of {tag}" for tag, result in trace["results"].items() if outputs[tag] != result["output"])
    yield from kv.violations
    kv.journal.save(journal)


def add(engine: Any, trace: dict[str, Any], tag: str) -> None:
    from vllm import SamplingParams

    spec = next(spec for spec in trace["requests"] if spec["tag"] == tag)
    sampling = SamplingParams(
        temperature=0, max_tokens=spec["max_tokens"], ignore_eos=spec["ignore_eos"], detokenize=False
    )
    engine.add_request(tag, {"prompt_token_ids": spec["prompt"]}, sampling, priority=spec["priority"])


def compare(kv: ObservedKV, recorded: dict[str, Any]) -> Iterator[str]:
    snapshot = kv.snapshot()
    expected = {tag: [*req[:4], vllm_traces.ids(req[4])] for tag, req in recorded["req"].items()}
    yield from differs("requests", requests(snapshot), expected)
    yield from differs("free queue", list(snapshot.pool.reuse_order), vllm_traces.ids(recorded["freeq"]))
    if "cached" in recorded:
        findable = [block for block, identity in enumerate(snapshot.pool.identities) if identity is not None]
        yield from differs("cached", findable, sorted(vllm_traces.ids(recorded["cached"])))
    shared = {str(block): owners for block, owners in enumerate(snapshot.pool.owners) if owners > 1}
    yield from differs("shared", shared, recorded.get("shared", {}))
    if kv.journal.fold() != snapshot:
        yield "the journal folds to another snapshot"


def requests(snapshot: Snapshot) -> dict[str, list[Any]]:
    return {
        view.name: [STATUS[view.status], view.slots, view.tokens, view.preemptions, list(view.blocks)]
        for view in snapshot.requests
    }


def differs(what: str, seen: Any, expected: Any) -> Iterator[str]:
    if seen != expected:
        yield f"{what}: {seen} where {expected} was recorded"


def main(model: str, folder: str, *names: str) -> None:
    laboratory = VllmLaboratory(model, block_size=16)
    allow_blocks_of_16()
    differences = {
        name: list(play(laboratory, vllm_traces.load(name), Path(folder) / f"{name}.jsonl")) for name in names
    }
    laboratory.close()
    print(json.dumps(differences))


if __name__ == "__main__":
    main(*sys.argv[1:])
