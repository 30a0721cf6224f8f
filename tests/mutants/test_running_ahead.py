"""Corners of planning ahead that random traffic seldom reaches."""

from __future__ import annotations

import pytest

from model_free import Bench

A, B, C = range(10, 40), range(40, 70), range(70, 100)


def test_a_block_whose_last_token_comes_after_its_request_s_last_plan_is_published() -> None:
    """One step ahead, slot 3 is planned before its token is known, and nothing is planned for "a" after that."""
    bench = Bench(num_blocks=5, asynchronous=True)
    bench.run("a", A[:3], 2, output=[A[3], 99])
    assert bench.snapshot.pool.cached == 1
    bench.run("b", A[:5])
    assert bench.hit("b") == 4


def test_a_victim_waits_for_the_token_under_way_even_if_it_fits_again() -> None:
    """The runner samples that token into a row which the victim has lost: a new row would lack it."""
    bench = Bench(num_blocks=6, enable_prefix_caching=False)
    holder, victim = bench.add("holder", A[:8], 2), bench.add("victim", B[:7], 4)
    bench.step()
    bench.launch()  # 3 and 2 blocks: all of them
    assert bench.launch().handles == ()  # the victim needs a third, and has only itself to pre-empt
    assert victim.table.status == "preempted"
    bench.abort(holder.name)
    assert bench.kv.fits(bench.kv.match(victim.table), len(victim.tokens), 0)
    assert bench.launch().handles == ()
    bench.collect()
    assert bench.launch().handles == (victim.handle,)
    bench.collect()
    bench.drain()
    assert bench.outputs[victim.handle] == bench.expected[victim.handle]


@pytest.mark.parametrize(("tokens", "fenced"), [(2, [1, 1, 0]), (4, [2, 2, 0])])
def test_what_two_steps_write_to_is_fenced_until_the_later_one_is_committed(tokens: int, fenced: list[int]) -> None:
    """One block that both write to, or one each."""
    bench = Bench(num_blocks=9)
    bench.add("a", A[:tokens], 9)
    assert (bench.launch().counts, bench.launch().counts) == ((tokens,), (1,))
    bench.abort("a")
    assert bench.snapshot.pool.fenced == fenced[0]
    for left in fenced[1:]:
        bench.collect()
        assert bench.snapshot.pool.fenced == left


def test_a_victim_that_runs_again_while_its_old_step_is_under_way_is_fenced_in_both_tables() -> None:
    """Its old row writes further back in the prompt than its new one, and to other blocks."""
    bench = Bench(num_blocks=9, enable_prefix_caching=False, max_num_batched_tokens=6)
    holder, victim = bench.add("holder", A[:16], 3), bench.add("victim", B[:16], 2)
    for _ in range(4):
        bench.step()
    old = bench.launch()
    assert (old.starts, old.counts) == ((17, 7), (1, 5))  # 5 and 3 blocks: all of them
    assert bench.launch().handles == ()  # the victim needs a fourth
    bench.abort(holder.name)
    new = bench.launch()
    assert (new.handles, new.starts, new.counts) == ((victim.handle,), (0,), (6,))
    bench.abort(victim.name)
    bench.add("next", C[:20], 1)
    bench.collect()
    bench.launch()
    bench.collect()
    bench.drain()
