"""Lines are measured in the cells of a terminal."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from pellucid.view.letters import shown
from pellucid.view.lines import CLOSING, OPENING, padded, padded_left, wrapped

KOREAN = "NEW 요청이 블록 27개를 받았습니다. 나란히 이어진 것은 많아야 22개였습니다."
CHINESE = "比任何一段连续空闲块都大的请求（例如 NEW，需要 27 个块），由零散的块来满足，而且“谁也不会”被搬动。"


@pytest.mark.parametrize("width", range(14, 90, 3))
def test_korean_breaks_at_spaces_only(width: int) -> None:
    lines = wrapped(KOREAN, width)
    assert max(map(cell_len, lines)) <= width
    assert " ".join(lines) == KOREAN


@pytest.mark.parametrize("width", range(10, 90, 3))
def test_chinese_breaks_between_characters_but_not_before_a_mark(width: int) -> None:
    lines = wrapped(CHINESE, width)
    assert max(map(cell_len, lines)) <= width
    assert re.sub(" ", "", "".join(lines)) == re.sub(" ", "", CHINESE)
    assert not any(line[0] in CLOSING or line[-1] in OPENING for line in lines)
    assert all(cell_len(line) >= width - 5 for line in lines[:-1])


def test_gaps_stay_and_indents_stay() -> None:
    assert wrapped("  27 blocks: 67-79  (the hole)", 80) == ["  27 blocks: 67-79  (the hole)"]
    assert wrapped("  27 blocks:   67-79", 14) == ["  27 blocks:", "67-79"]
    assert wrapped("", 10) == []


def test_a_word_longer_than_the_line_is_cut() -> None:
    assert wrapped("a 0123456789abc z", 5) == ["a", "01234", "56789", "abc z"]
    assert wrapped("가나다라마", 5) == ["가나", "다라", "마"]


@given(st.text(alphabet="ab 1,.-가나 块空（，。）", max_size=60), st.integers(2, 30))
def test_no_line_is_too_long_and_nothing_is_lost(text: str, width: int) -> None:
    lines = wrapped(text, width)
    assert all(cell_len(line) <= width for line in lines)
    assert "".join("".join(lines).split()) == "".join(text.split())


def test_names_and_columns_count_cells() -> None:
    assert padded("낭비", 6) == "낭비  "
    assert padded_left("块", 4) == "  块"
    assert shown("요청-하나-둘", 8) == "요청- .."
    assert cell_len(shown("요청하나둘셋넷", 8)) == 8
