"""verify2 with other pools, block sizes and lengths: it prints what plain lists say it must."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import list_pool
import pytest

from pellucid.model import find

SCRIPT = (Path(__file__).parent.parent / "data" / "founding" / "verify2_holes.py").read_text()
BODY = "요청 %s 의 본문입니다. 블록을 여러 개 차지하도록 길게 씁니다. "
NEED = "새 요청. 흩어진 빈칸을 모두 써야 들어갈 만큼 길게 만든 프롬프트입니다. "


def edited(pool: int, block: int, times: int, max_model_len: int) -> str:
    """The founding program with other sizes, and nothing else."""
    assert BODY in SCRIPT
    assert NEED in SCRIPT
    text = SCRIPT
    for pattern, size, places in (
        (r"(?m)^(POOL = )80\b", pool, 1),
        (r"(?m)^(BLK = )16\b", block, 1),
        (r"(\* )5\b", times, 4),
        (r"(max_model_len=)512\b", max_model_len, 1),
    ):
        text, replaced = re.subn(pattern, rf"\g<1>{size}", text)
        assert replaced == places
    return text


def printed(out: str, label: str) -> Any:
    found = re.search(re.escape(label) + r"\s*(None|\[.*?\])", out)
    assert found, label
    return ast.literal_eval(found[1])


def check(play: Any, model: str, tokens: Callable[[str], int], pool: int, block: int, times: int, most: int) -> None:
    bodies = [tokens((BODY % letter) * times) for letter in "ABC"]
    need = tokens(NEED * times)
    expected = list_pool.verify2(pool, block, most, bodies, need)
    ran = play(edited(pool, block, times, most), model=model)
    assert [printed(ran.out, f"  R{i} :") for i in range(3)] == expected.tables
    if expected.hole_missing:
        assert (ran.status, "TypeError: 'NoneType' object is not iterable" in ran.err) == (1, True)
    elif expected.refused:
        assert (ran.status, f"has a prompt of {need} tokens, and max_model_len={most}" in ran.err) == (1, True)
    else:
        assert ran.status == 0, ran.err
        assert printed(ran.out, f"NEW 가 받은 블록 ({len(expected.new)}개) :") == expected.new
    if expected.new:
        hole = set(expected.tables[1] or ())
        reused = sorted(hole & set(expected.new))
        assert printed(ran.out, f"구멍에서 재사용 : {len(reused)}개") == reused


TINY = [
    # pool, block size, repetitions, max_model_len
    (80, 16, 5, 512),  # R2 has to wait for R1's blocks, and NEW waits for ever
    (70, 16, 5, 512),
    (100, 16, 5, 512),  # fresh, then hole
    (80, 16, 3, 512),  # fresh blocks are enough
    (60, 16, 3, 512),  # the survivors grow before NEW comes
    (130, 8, 3, 512),
    (150, 8, 4, 512),
    (80, 8, 5, 512),  # R1 itself has to wait: the script has no hole and fails
    (40, 32, 5, 512),
    (48, 32, 5, 512),
    (120, 16, 6, 512),  # all three end at max_model_len, and NEW is refused
    (120, 16, 6, 1024),
    (520, 1, 2, 512),
]


@pytest.mark.parametrize(("pool", "block", "times", "most"), TINY)
def test_with_the_tiny_model(play: Any, pool: int, block: int, times: int, most: int) -> None:
    check(play, "tiny", lambda text: len(text.encode()), pool, block, times, most)


SMOLLM2 = [
    (70, 16, 5, 512),  # 3 + 22 blocks are not the 27 that NEW needs
    (100, 16, 5, 512),  # fresh blocks are enough
    (100, 8, 3, 512),  # 208 tokens fill 26 blocks: the second step takes a block each
    (40, 32, 5, 512),
]


@pytest.mark.model
@pytest.mark.parametrize(("pool", "block", "times", "most"), SMOLLM2)
def test_with_the_real_model(play: Any, pool: int, block: int, times: int, most: int) -> None:
    tokenizer = find("smollm2-135m").tokenizer()
    assert tokenizer is not None
    check(play, "smollm2-135m", lambda text: len(tokenizer.encode(text)), pool, block, times, most)


def test_the_cases_cover_every_outcome() -> None:
    outcomes = set()
    for pool, block, times, most in TINY:
        bodies = [len((BODY % "A").encode()) * times] * 3
        expected = list_pool.verify2(pool, block, most, bodies, len(NEED.encode()) * times)
        hole = set(expected.tables[1] or ())
        new = set(expected.new)
        outcomes.add(
            "no hole"
            if expected.hole_missing
            else "refused"
            if expected.refused
            else "waits"
            if not new
            else "fresh"
            if not new & hole
            else "fresh and hole"
        )
    assert outcomes == {"no hole", "refused", "waits", "fresh", "fresh and hole"}
