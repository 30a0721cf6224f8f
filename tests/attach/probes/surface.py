"""What an observer finds on the live objects of this vLLM: names, signatures, fields and types, as one JSON object."""

from __future__ import annotations

import dataclasses
import inspect
import json
import tempfile
from pathlib import Path
from typing import Any

HOOKS = {
    "scheduler": "schedule update_from_output add_request finish_requests reset_prefix_cache has_requests "
    "_preempt_request _free_request _free_blocks _update_request_with_output update_draft_token_ids make_stats",
    "manager": "get_block_ids get_blocks get_computed_blocks allocate_slots cache_blocks free reset_prefix_cache usage",
    "pool": "get_new_blocks touch free_blocks cache_full_blocks evict_blocks reset_prefix_cache get_num_free_blocks "
    "get_usage get_cached_block _maybe_evict_cached_block take_events",
    "queue": "get_all_free_blocks popleft popleft_n append append_n prepend_n remove",
    "coordinator": "single_type_managers get_blocks find_longest_cache_hit free allocate_new_blocks",
    "core": "preprocess_add_request add_request abort_requests step step_fn step_with_batch_queue reset_prefix_cache",
}


def signature(owner: Any, name: str) -> str | None:
    found = getattr(type(owner), name, None) or getattr(owner, name, None)  # the class's, not our wrapper
    return str(inspect.signature(found)) if callable(found) else None if found is None else type(found).__name__


def fields(kind: Any) -> list[str]:
    """The fields of a dataclass or of a msgspec struct."""
    if dataclasses.is_dataclass(kind):
        return [field.name for field in dataclasses.fields(kind)]
    return list(kind.__struct_fields__)


def types(owner: Any) -> dict[str, str]:
    return {name: type(value).__name__ for name, value in sorted(vars(owner).items())}


def watch(scheduler: Any) -> list[dict[str, Any]]:
    """Notes the resumptions and pre-emptions in what the scheduler puts out, as they are told there."""
    notes: list[dict[str, Any]] = []
    schedule = scheduler.schedule

    def noting(*args: Any, **options: Any) -> Any:
        output = schedule(*args, **options)
        cached = output.scheduled_cached_reqs
        if (resumed := getattr(cached, "resumed_req_ids", None)) is None:
            told = zip(cached.req_ids, cached.resumed_from_preemption, strict=True)
            resumed = [name for name, is_resumed in told if is_resumed]
        for name in resumed:
            told = cached.new_block_ids[cached.req_ids.index(name)]
            whole = scheduler.kv_cache_manager.get_block_ids(name)
            notes.append({"resumed": name, "in": "cached", "told": told, "whole table": list(told) == list(whole)})
        for new in output.scheduled_new_reqs:
            if scheduler.requests[new.req_id].num_output_tokens:
                notes.append({"resumed": new.req_id, "in": "new"})
        if preempted := getattr(output, "preempted_req_ids", None):
            notes.append({"preempted": sorted(preempted)})
        if any(told and any(told) for told in cached.new_block_ids):
            notes.append({"grown": cached.new_block_ids[:3]})
        return output

    scheduler.schedule = noting
    return notes


def report(engine: Any, added: dict[str, Any], notes: list[dict[str, Any]]) -> dict[str, Any]:
    import vllm
    from vllm.v1.core.sched import output
    from vllm.v1.engine import EngineCoreRequest
    from vllm.v1.request import RequestStatus

    core = engine.engine_core.engine_core
    scheduler = core.scheduler
    manager = scheduler.kv_cache_manager
    pool, coordinator = manager.block_pool, getattr(manager, "coordinator", None)
    owners = {"scheduler": scheduler, "manager": manager, "pool": pool, "queue": pool.free_block_queue}
    owners |= {"coordinator": coordinator, "core": core}
    request = scheduler.running[0]
    blocks = [pool.blocks[b] for b in manager.get_block_ids(request.request_id)[0]]
    hashed = next(block for block in blocks if block.block_hash is not None)
    states = engine.output_processor.request_states
    return {
        "version": vllm.__version__,
        "hooks": {
            name: {hook: signature(owner, hook) for hook in HOOKS[name].split()} for name, owner in owners.items()
        },
        "classes": {name: [kind.__name__ for kind in type(owner).__mro__] for name, owner in owners.items()},
        "attributes": {name: types(owner) for name, owner in owners.items()},
        "SchedulerOutput": fields(output.SchedulerOutput),
        "CachedRequestData": fields(output.CachedRequestData),
        "NewRequestData": fields(output.NewRequestData),
        "EngineCoreRequest": fields(EngineCoreRequest),
        "Request": types(request) | {"request_id": request.request_id, "status": str(request.status)},
        "RequestStatus": [status.name for status in RequestStatus],
        "block": {
            "slots": sorted(getattr(type(hashed), "__slots__", ()) or vars(hashed)),
            "hash": f"{type(hashed.block_hash).__name__}: {hashed.block_hash!r}"[:160],
            "hash of a request": str([type(h).__name__ for h in getattr(request, "block_hashes", [])][:1]),
            "null": [pool.null_block.block_id, pool.null_block.ref_cnt, pool.null_block.is_null],
        },
        "managers": [type(one).__name__ for one in getattr(coordinator, "single_type_managers", [])],
        "add_request returned": added["q0"],
        "output_processor": types(engine.output_processor),
        "external_req_ids": str(dict(list(getattr(engine.output_processor, "external_req_ids", {}).items())[:2])),
        "RequestState": types(next(iter(states.values()))),
        "unknown id": str(manager.get_block_ids("nobody")),
        "groups": [
            [type(group.kv_cache_spec).__name__, group.layer_names, group.kv_cache_spec.block_size]
            for group in scheduler.kv_cache_config.kv_cache_groups
        ],
        "tables": {name: manager.get_block_ids(name) for name in list(scheduler.requests)[:3]},
        "notes": notes,
    }


def main() -> None:
    from attach.stub.engine import add, drain, make_engine, prompts

    with tempfile.TemporaryDirectory() as folder:
        engine = make_engine(Path(folder))
        notes = watch(engine.engine_core.engine_core.scheduler)
        added = add(engine, prompts())
        while not any("resumed" in note for note in notes):  # by then some were pre-empted
            engine.step()
        found = report(engine, added, notes)
        drain(engine)
    print(json.dumps(found, default=str))


if __name__ == "__main__":
    main()
