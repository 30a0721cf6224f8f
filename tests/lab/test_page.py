"""Facts and tables on a page of any width."""

from __future__ import annotations

import pytest
from rich.cells import cell_len

from pellucid.lab.page import Page
from pellucid.lab.proof import Table
from pellucid.lang import LANGUAGES, say, told
from pellucid.view.lines import PIECE

TABLE = Table(
    (say("prompt"), say("tokens"), say("blocks"), say("waste"), say("blocks if reserved"), say("longest request")),
    (
        ("a-rather-long-name", "1,024", "64", "0", "79", say("by the survivors")),
        ("b", "17", "2", "15", "79", "-"),
    ),
)


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize("width", [40, 70, 80])
def test_a_table_fits_and_cuts_no_word(width: int, language: str) -> None:
    lines = [line.plain for line in Page(width, language).table(TABLE, indent=2)]
    assert max(map(cell_len, lines)) <= width
    drawn = "\n".join(lines)
    for cell in (*TABLE.header, *TABLE.rows[0], *TABLE.rows[1]):
        for piece in PIECE.findall(told(cell, language)):
            assert piece in drawn


def test_columns_of_numbers_end_at_the_same_place_and_others_begin_there() -> None:
    header, first, second = (line.plain for line in Page(120).table(TABLE))
    for word, one, other in (("tokens", "1,024", "17"), ("blocks", "64", "2"), ("waste", "0", "15")):
        end = header.index(word) + len(word)
        assert first[:end].endswith(f"  {one}")
        assert second[:end].endswith(f"  {other}")
    assert header.index("longest request") == first.index("by the survivors")


def test_the_widest_column_gives_way_at_its_spaces() -> None:
    assert [line.plain for line in Page(65).table(TABLE)] == [
        "prompt              tokens  blocks  waste   blocks if  longest",
        "                                             reserved  request",
        "a-rather-long-name   1,024      64      0          79  by the",
        "                                                       survivors",
        "b                       17       2     15          79  -",
    ]


def test_a_row_that_does_not_fit_is_told_cell_by_cell() -> None:
    lines = [line.plain for line in Page(40).table(TABLE)]
    assert lines[:2] == ["prompt              a-rather-long-name", "tokens              1,024"]
    assert len(lines) == 12


def test_a_label_longer_than_half_a_line_stands_above() -> None:
    label = "/a/long/way/to/pellucid prove --model tiny"
    lines = [line.plain for line in Page(40).facts([(label, "a random model"), ("next", "nothing")], indent=2)]
    assert lines == [
        "  /a/long/way/to/pellucid prove --model",
        "  tiny",
        " " * 22 + "a random model",
        "  next" + " " * 16 + "nothing",
    ]
