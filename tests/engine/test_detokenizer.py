"""Text grows with the tokens, never by half a character (vllm#984, vllm-mlx#109, exo#1691 and others)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from model_free import examples
from pellucid.engine.detokenizer import REPLACEMENT, Detokenizer
from pellucid.model import LoadedModel

TEXTS = ("plain words, with spaces", "안녕하세요 세계", "žluťoučký kůň", "a ❤️ and 👩‍👩‍👧", " leading and trailing ")


def deltas(tokenizer: object, ids: list[int]) -> list[str]:
    detokenizer = Detokenizer(tokenizer, skip_special_tokens=True)
    pieces = [detokenizer.catch_up(ids[:length], last=length == len(ids)) for length in range(1, len(ids) + 1)]
    assert detokenizer.text == "".join(pieces)
    return pieces


@pytest.mark.parametrize("text", TEXTS)
def test_bytes_join_to_the_text_without_half_characters(tiny: LoadedModel, text: str) -> None:
    ids = tiny.tokenizer.encode(text)
    pieces = deltas(tiny.tokenizer, ids)
    assert "".join(pieces) == text
    assert not any(REPLACEMENT in piece for piece in pieces)
    assert len(ids) == len(text.encode())


@pytest.mark.model
@pytest.mark.parametrize("text", TEXTS)
def test_byte_level_bpe_joins_to_the_full_decode(smollm2: LoadedModel, text: str) -> None:
    ids = smollm2.tokenizer.encode(text)
    pieces = deltas(smollm2.tokenizer, ids)
    assert "".join(pieces) == smollm2.tokenizer.decode(ids)
    assert not any(REPLACEMENT in piece for piece in pieces)


def test_an_unfinished_character_at_the_very_end_is_flushed_once(tiny: LoadedModel) -> None:
    pieces = deltas(tiny.tokenizer, [*b"ok ", *"한".encode()[:2]])
    assert "".join(pieces[:-1]) == "ok "
    assert REPLACEMENT in pieces[-1]


@given(
    ids=st.lists(st.sampled_from([*b"ab ", *"한é".encode(), 0xFF, 0x80]), max_size=12),
    lengths=st.lists(st.integers(0, 12), max_size=4),
    last=st.booleans(),
)
@examples(300)
def test_text_is_the_same_whenever_it_is_asked_for(
    tiny: LoadedModel, ids: list[int], lengths: list[int], last: bool
) -> None:
    plain, now_and_then = (Detokenizer(tiny.tokenizer, skip_special_tokens=True) for _ in range(2))
    texts = [""]
    for length in range(1, len(ids) + 1):
        plain.catch_up(ids[:length], last=last and length == len(ids))
        texts.append(plain.text)
    for length in [*sorted(length for length in lengths if length < len(ids)), len(ids)]:
        now_and_then.catch_up(ids[:length], last=last and length == len(ids))
        assert now_and_then.text == texts[length]
