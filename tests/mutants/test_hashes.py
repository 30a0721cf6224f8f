"""A hash in the cache is checked although nobody owns its block."""

from __future__ import annotations

from msgspec.structs import replace

from model_free import Bench


def test_an_ownerless_block_under_a_hash_that_is_not_its_contents() -> None:
    bench = Bench(num_blocks=5)
    bench.run("a", range(10, 14))
    (cached,) = (block for block in bench.kv.pool.blocks if block.content is not None)
    assert bench.auditor.check() == []
    cached.content = replace(cached.content, tokens=(7, 7, 7, 7))
    assert {(fault.invariant, fault.blocks) for fault in bench.auditor.check()} == {("I6", (cached.id,))}
