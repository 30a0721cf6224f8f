"""A vLLM with one fault put into it while it lives: what the claims come to, by fault, as one JSON object.

    faulty.py MODEL

MODEL is a Hugging Face folder; of its weights nothing is read.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from pellucid.lab.claim import Claim
from pellucid.lab.claims.accounting import ACCOUNTING
from pellucid.lab.claims.isolation import ISOLATION
from pellucid.lab.claims.taken_as_used import TAKEN_AS_USED
from pellucid.lab.trial import play
from pellucid.lab.vllm_laboratory import VllmLaboratory


def sound(engine: Any) -> None:
    """No fault."""


def loses_a_block(engine: Any) -> None:
    """One block never comes back to the free queue."""
    pool = manager(engine).block_pool
    original, lost = pool.free_blocks, []

    def free_blocks(blocks: Any, *rest: Any) -> None:
        blocks = list(blocks)
        if blocks and not lost:
            lost.append(blocks.pop())
            lost[0].ref_cnt -= 1
        original(blocks, *rest)

    pool.free_blocks = free_blocks


def never_frees(engine: Any) -> None:
    """Nothing comes back."""
    manager(engine).free = lambda request: None


def counts_an_owner_too_few(engine: Any) -> None:
    """Of a prefix hit the first block's owners are not counted."""
    pool = manager(engine).block_pool
    original = pool.touch

    def touch(blocks: Any) -> None:
        original(blocks)
        first = next(block for group in blocks for block in (group if isinstance(group, tuple | list) else (group,)))
        first.ref_cnt = max(1, first.ref_cnt - 1)

    pool.touch = touch


def gives_one_block_twice(engine: Any) -> None:
    """Once, a block that somebody holds is given out again."""
    pool = manager(engine).block_pool
    original, seen = pool.get_new_blocks, []

    def get_new_blocks(count: int) -> Any:
        blocks = original(count)
        seen.extend(blocks)
        if len(seen) > 3 and seen[0].ref_cnt == 1 and seen[0] not in blocks:
            pool.free_block_queue.append(blocks[-1])
            blocks[-1].ref_cnt = 0
            blocks[-1] = seen[0]
            seen[0].ref_cnt += 1
        return blocks

    pool.get_new_blocks = get_new_blocks


@contextmanager
def forgets_salts() -> Iterator[None]:
    """A prefix is known by its tokens alone."""
    from vllm.v1.core import kv_cache_utils

    original = kv_cache_utils.generate_block_hash_extra_keys
    kv_cache_utils.generate_block_hash_extra_keys = lambda request, start, end, index: (None, index)
    try:
        yield
    finally:
        kv_cache_utils.generate_block_hash_extra_keys = original


class Faulty(VllmLaboratory):
    """Its engines have ``fault`` before anybody observes them."""

    fault: Callable[[Any], None] = staticmethod(sound)

    def engine(self, **settings: Any) -> Any:
        engine = super().engine(**settings)
        self.fault(engine)
        return engine


def manager(engine: Any) -> Any:
    return engine.engine_core.engine_core.scheduler.kv_cache_manager


def judged(laboratory: Faulty, fault: Callable[[Any], None], *claims: Claim) -> dict[str, list[str]]:
    laboratory.fault = fault
    plays = play(laboratory, list({scenario.name: scenario for claim in claims for scenario in claim.needs}.values()))
    proofs = [claim.prove(plays.recordings, plays.missing) for claim in claims]
    return {proof.id: [str(proof.verdict), proof.reason] for proof in proofs}


IN_SALTS = ACCOUNTING._replace(needs=ISOLATION.needs)
"""The books of the runs with salts."""


def main(model: str) -> None:
    laboratory = Faulty(model, load_format="dummy")
    told = {
        fault.__name__: judged(laboratory, fault, TAKEN_AS_USED, ACCOUNTING)
        for fault in (sound, loses_a_block, never_frees, gives_one_block_twice)
    }
    told["counts_an_owner_too_few"] = judged(laboratory, counts_an_owner_too_few, ISOLATION, IN_SALTS)
    with forgets_salts():
        told["forgets_salts"] = judged(laboratory, sound, ISOLATION, IN_SALTS)
    laboratory.close()
    print(json.dumps(told))


if __name__ == "__main__":
    main(*sys.argv[1:])
