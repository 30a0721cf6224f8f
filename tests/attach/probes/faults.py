"""A live vLLM that does wrong, one way after the other: what observing it says. The last line is one JSON object."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from attach.stub.engine import add, drain, make_engine, prompts
from pellucid.attach import observe
from pellucid.attach.kv import ObservedKV
from pellucid.errors import PellucidError

Engine = Any


def scheduler(engine: Engine) -> Any:
    return engine.engine_core.engine_core.scheduler


def pool(engine: Engine) -> Any:
    return scheduler(engine).kv_cache_manager.block_pool


def lose_a_block(engine: Engine) -> None:
    """A freed block never joins the free queue."""
    original = pool(engine).free_blocks

    def free_blocks(ordered_blocks: Any) -> None:
        first, *rest = list(ordered_blocks)
        first.ref_cnt -= 1
        original(rest)

    pool(engine).free_blocks = free_blocks


def keep_an_owner(engine: Engine) -> None:
    """A freed block keeps its last owner: the classic leak."""
    original = pool(engine).free_blocks
    pool(engine).free_blocks = lambda ordered_blocks: original(list(ordered_blocks)[1:])


def give_out_twice(engine: Engine) -> None:
    """A block that somebody holds is given to a second request, without a further owner being counted."""
    original = pool(engine).get_new_blocks

    def get_new_blocks(count: int, *args: Any, **kwargs: Any) -> Any:
        blocks = original(count, *args, **kwargs)
        held = next((block for block in pool(engine).blocks[1:] if block.ref_cnt and block not in blocks), None)
        return [*blocks[:-1], held] if held else blocks

    pool(engine).get_new_blocks = get_new_blocks


def swap_in_a_table(engine: Engine) -> None:
    """Two blocks of a running request change places."""
    original, left = scheduler(engine).schedule, [20]

    def schedule(*args: Any, **kwargs: Any) -> Any:
        left[0] -= 1
        if not left[0]:
            managers = scheduler(engine).kv_cache_manager.coordinator.single_type_managers
            table = managers[0].req_to_blocks[scheduler(engine).running[0].request_id]
            table[0], table[1] = table[1], table[0]
        return original(*args, **kwargs)

    scheduler(engine).schedule = schedule


def forget_a_hash(engine: Engine) -> None:
    """A cached block loses its hash."""
    original, left = scheduler(engine).schedule, [20]

    def schedule(*args: Any, **kwargs: Any) -> Any:
        left[0] -= 1
        if not left[0]:
            next(block for block in pool(engine).blocks if block.block_hash is not None)._block_hash = None
        return original(*args, **kwargs)

    scheduler(engine).schedule = schedule


FAULTS: tuple[Callable[[Engine], None], ...] = (
    lose_a_block,
    keep_an_owner,
    give_out_twice,
    swap_in_a_table,
    forget_a_hash,
)


def run(fault: Callable[[Engine], None] | None) -> dict[str, Any]:
    """Eight requests under pressure, on an engine of their own, observed from before the fault until the end."""
    with tempfile.TemporaryDirectory() as folder:
        engine = make_engine(Path(folder))
        if fault is not None and fault.__name__ in ("swap_in_a_table", "forget_a_hash"):
            fault(engine)  # under the observer's wrapper, or the observer would see vLLM before it does wrong
            fault = None
        kv = observe(engine)
        if fault is not None:
            fault(engine)
        add(engine, prompts())
        try:
            steps, outputs = drain(engine)
            ended = {"steps": steps, "outputs": len(outputs)}
        except Exception as error:  # vLLM's own assertions may fire on such a pool
            ended = {"vllm": f"{type(error).__name__}: {error}"}
        return {"said": len(kv.violations), "violations": kv.violations[:3], "stopped": kv.stopped, **ended}


def breakdown() -> dict[str, Any]:
    """Observing itself fails in the middle: vLLM's answers are those of an unobserved run."""
    outputs = []
    kv: ObservedKV | None = None
    for broken in (False, True):
        with tempfile.TemporaryDirectory() as folder:
            engine = make_engine(Path(folder))
            if broken:
                kv = observe(engine)
                add(engine, prompts())
                for _ in range(5):
                    engine.step()
                kv._observer.mirror.owners = None  # type: ignore[assignment]
            else:
                add(engine, prompts())
            outputs.append(drain(engine)[1])
    assert kv is not None
    try:
        kv.snapshot()
        refused = None
    except PellucidError as error:
        refused = str(error)
    return {"same": outputs[0] == outputs[1], "answers": len(outputs[1]), "stopped": kv.stopped, "refused": refused}


def main() -> None:
    result = {fault.__name__: run(fault) for fault in FAULTS}
    print(json.dumps({"none": run(None), **result, "breakdown": breakdown()}))


if __name__ == "__main__":
    main()
