"""The same as vLLM 0.32.0, block for block: every recorded run, with forced tokens and no model."""

from __future__ import annotations

from typing import Any

import pytest

import vllm_traces
from pellucid.kv import acts
from pellucid.runtime.forced import ForcedRunner

STATUS = {"running": "RUNNING", "waiting": "WAITING", "preempted": "PREEMPTED"}


def scheduled(step_acts: list[Any]) -> dict[str, Any]:
    """What a step decided, told by its acts in the recording's words."""
    launch = [act for act in step_acts if isinstance(act, acts.Launch)]
    blocks: dict[str, list[int]] = {}
    for act in step_acts:
        if isinstance(act, acts.Share | acts.Take):
            blocks.setdefault(act.request, []).extend(act.blocks)
    admitted = [act.request for act in step_acts if isinstance(act, acts.Admit)]
    preempted = [act.request for act in step_acts if isinstance(act, acts.Preempt)]
    counts = dict(zip(launch[0].requests, launch[0].counts, strict=True)) if launch else {}
    return {
        "tokens": list(counts.items()),
        "admitted": admitted,
        "preempted": preempted,
        "lookups": [[act.request, act.asked, act.hit] for act in step_acts if isinstance(act, acts.Lookup)],
        "new_blocks": {name: ids for name, ids in blocks.items() if name in counts},
    }


def recorded_schedule(recorded: dict[str, Any]) -> dict[str, Any]:
    sched = recorded["sched"]
    if sched is None:
        return {"tokens": [], "admitted": [], "preempted": [], "lookups": [], "new_blocks": {}}
    return {
        "tokens": list(sched["tokens"].items()),
        "admitted": [tag for tag in sched["tokens"] if tag in sched["new"] + sched["resumed"]],
        "preempted": sched["preempted"],
        "lookups": sched["lookups"],
        "new_blocks": sched["new_blocks"],
    }


@pytest.mark.parametrize("name", vllm_traces.NAMES)
def test_every_step_is_the_recorded_one(name: str) -> None:
    trace = vllm_traces.load(name)
    core = vllm_traces.engine(trace, ForcedRunner({tag: r["output"] for tag, r in trace["results"].items()}))
    kv, seen, outputs = core.scheduler.kv, 0, {tag: [] for tag in trace["results"]}
    assert list(kv.snapshot().pool.reuse_order) == vllm_traces.ids(trace["initial"]["freeq"])
    for observed in vllm_traces.drive(trace, core):
        recorded = observed.recorded
        step_acts = list(kv.journal.since(seen))
        seen = len(kv.journal)
        where = f"{name}, step {recorded['step']}"
        assert scheduled(step_acts) == recorded_schedule(recorded), where

        snapshot = kv.snapshot()
        tables = {
            r.name: [STATUS[r.status], r.slots, r.tokens, r.preemptions, list(r.blocks)] for r in snapshot.requests
        }
        expected = {tag: [*req[:4], vllm_traces.ids(req[4])] for tag, req in recorded["req"].items()}
        assert tables == expected, where
        assert [s.name for s in core.scheduler.running] == recorded["running"], where
        assert [s.name for s in core.scheduler.waiting] == recorded["waiting"], where
        assert list(snapshot.pool.reuse_order) == vllm_traces.ids(recorded["freeq"]), where
        if "cached" in recorded:
            findable = [i for i, identity in enumerate(snapshot.pool.identities) if identity is not None]
            assert findable == sorted(vllm_traces.ids(recorded["cached"])), where
        shared = {str(i): n for i, n in enumerate(snapshot.pool.owners) if n > 1}
        assert shared == recorded.get("shared", {}), where
        assert kv.journal.fold() == snapshot, where

        for progress in observed.progress:
            outputs[progress.sequence.name].append(progress.token)
        ended = {p.sequence.name: p.sequence.finish_reason for p in observed.progress if p.sequence.finish_reason}
        assert ended == {tag: reason for tag, reason in recorded.get("fin", {}).items() if reason != "abort"}, where
    assert outputs == {tag: r["output"] for tag, r in trace["results"].items()}
