"""A running request that needs blocks which the next commit brings waits for them, and for those only."""

from __future__ import annotations

from model_free import Bench


def test_just_enough_fenced_blocks_are_waited_for_and_nobody_is_admitted_meanwhile() -> None:
    bench = Bench(num_blocks=9, block_size=2, enable_prefix_caching=False, max_num_batched_tokens=6)
    bench.add("aborted", [1], 9)
    bench.add("growing", [2, 3], 3)
    prompt = bench.add("prompt", range(10, 22), 1)
    bench.step()
    assert bench.launch().counts == (1, 1, 4)
    bench.abort("aborted")
    new = bench.add("new", [4], 1)
    assert (bench.snapshot.pool.reclaimable, bench.snapshot.pool.fenced) == (1, 1)
    assert bench.launch().counts == (1,)  # the prompt needs both, and "new" would fit into one
    assert (prompt.table.preemptions, new.table.status) == (0, "waiting")
    bench.collect()
    assert bench.launch().counts == (5,)
    bench.collect()
    bench.collect()
    bench.drain()


def test_a_fenced_block_that_has_a_reader_is_not_waited_for() -> None:
    bench = Bench(num_blocks=4)
    growing = bench.add("growing", [1, 2, 3], 4)
    bench.step()
    bench.add("writer", range(10, 14), 2)
    reader = bench.add("reader", range(10, 15), 2)
    assert bench.launch().counts == (1, 4, 1)
    bench.abort("writer")
    assert bench.snapshot.pool.states[1:] == ("held", "held", "held")
    assert bench.launch().handles == ()
    assert (reader.table.preemptions, growing.table.preemptions) == (1, 0)
    bench.collect()
    bench.drain()
