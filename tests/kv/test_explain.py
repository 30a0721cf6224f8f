"""`explain` in full sentences."""

from __future__ import annotations

import pytest

from model_free import begin, end, run
from pellucid.errors import UnknownRequest
from pellucid.kv import KVManager


def manager(num_blocks: int = 9, **options: bool) -> KVManager:
    return KVManager(num_blocks, 4, **options)


def test_before_admission() -> None:
    kv = manager()
    kv.open("a", [1, 2])
    assert str(kv.explain("a")) == "a: not admitted yet, so nothing has been asked."
    assert kv.explain("a").hit == 0


def test_with_caching_off() -> None:
    kv = manager(enable_prefix_caching=False)
    begin(kv, "a", [1, 2])
    expected = "a: prefix caching is off (enable_prefix_caching=False), so nothing was asked."
    assert str(kv.explain("a")) == expected


def test_a_cold_prompt() -> None:
    kv = manager()
    run(kv, "a", range(10))
    assert str(kv.explain("a")) == (
        "a: asked 10 tokens, hit 0 (step 1); blocks 0-1: never seen; the last 2 tokens are shorter than a block of 4."
    )


def test_one_token_is_no_plural() -> None:
    kv = manager()
    run(kv, "a", range(5))
    assert "the last token is shorter than a block of 4" in str(kv.explain("a"))


def test_a_warm_prompt() -> None:
    kv = manager()
    run(kv, "a", range(8))
    run(kv, "b", range(8))
    assert str(kv.explain("b")) == (
        "b: asked 8 tokens, hit 4 (step 2); block 1 was there, but at least one token must be computed."
    )


def test_an_eviction_names_step_and_request() -> None:
    kv = manager(num_blocks=5)
    run(kv, "a", range(12))
    run(kv, "R7", range(20, 32))
    run(kv, "b", range(12))
    assert str(kv.explain("b")) == ("b: asked 12 tokens, hit 4 (step 3); blocks 1-2 were evicted at step 2 for R7.")


def test_another_salt() -> None:
    kv = manager()
    run(kv, "a", range(4), salt="s")
    run(kv, "b", range(4))
    assert str(kv.explain("b")) == "b: asked 4 tokens, hit 0 (step 2); block 0 was there under another salt or adapter."


def test_a_bypass() -> None:
    kv = manager()
    run(kv, "a", range(4), skip_lookup=True)
    assert str(kv.explain("a")) == "a: asked 4 tokens, hit 0 (step 1, bypass); the request asked not to read the cache."


def test_a_resume() -> None:
    kv = manager()
    table, other = begin(kv, "a", range(9)), begin(kv, "b", range(20, 24))
    kv.begin_step()
    kv.preempt(table, other, None)
    kv.admit(table, kv.match(table), 9)
    assert str(kv.explain("a")).startswith("a: asked 9 tokens, hit 8 (step 3, resume); ")


def test_a_finished_request_is_still_explained_and_a_reused_name_is_the_new_one() -> None:
    kv = manager()
    run(kv, "a", range(9))
    assert kv.explain("a").lookup is not None
    kv.open("a", [1])
    assert kv.explain("a").lookup is None


def test_nobody_is_not_explained() -> None:
    kv = manager()
    end(kv, kv.open("a", [1]))
    with pytest.raises(UnknownRequest, match="no request is named 'b'"):
        kv.explain("b")
