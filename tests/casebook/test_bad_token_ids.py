"""A token id outside the vocabulary is refused before anything is scheduled, and named; nobody else notices.

Reported in vllm#9634, #51795, #26797, #54195 (PR #54196) and #16529, vllm-ascend#16714 and gonka#1170.
"""

from __future__ import annotations

import pytest

from model_free import Bench
from pellucid.errors import RequestError

VOCAB = 1000


@pytest.mark.parametrize("asynchronous", [False, True])
@pytest.mark.parametrize("token", [VOCAB, -1, 2**40, 2**63, -(2**63)])
@pytest.mark.parametrize("where", ["first of prompt", "last of prompt", "stop ids"])
def test_the_id_is_named_and_nothing_is_taken(where: str, token: int, asynchronous: bool) -> None:
    bench = Bench(num_blocks=12, vocab_size=VOCAB, asynchronous=asynchronous)
    healthy = bench.add("healthy", range(9), 6)
    bench.step()
    prompt = {"first of prompt": [token, 1, 2], "last of prompt": [1, 2, token], "stop ids": [1, 2, 3]}[where]
    options = {"stop_token_ids": (5, token), "min_tokens": 1} if where == "stop ids" else {}
    before = bench.snapshot
    field = "stop_token_ids" if where == "stop ids" else "prompt"
    with pytest.raises(RequestError, match=rf"'bad' has token id {token} in its {field}, outside .* of {VOCAB}"):
        bench.add("bad", prompt, 4, **options)
    assert bench.snapshot == before
    bench.drain()
    assert bench.outputs[healthy.handle] == bench.expected[healthy.handle]
    assert not any("bad" in str(act) for act in bench.kv.journal)


def test_the_ends_of_the_vocabulary_are_inside() -> None:
    bench = Bench(num_blocks=12, vocab_size=VOCAB)
    bench.run("edge", [0, VOCAB - 1], 2, stop_token_ids=(0, VOCAB - 1))


def test_without_a_model_only_what_no_identity_can_hold_is_refused() -> None:
    bench = Bench(num_blocks=12)
    bench.run("large", [2**40, 2**63 - 1, 1, 2, 3], 2)
    for token in (-1, 2**63):
        with pytest.raises(RequestError, match=f"token id {token}"):
            bench.add("bad", [token], 2)
