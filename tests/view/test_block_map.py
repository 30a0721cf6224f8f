"""What the map shows, beside a plain count of what the snapshot holds."""

from __future__ import annotations

import pytest
from rich.console import Console

from pellucid.view import Letters, block_map, legend, picture, strips, totals
from view.pictures import cells, snapshot

HOLE = {"R0": range(1, 23), "R2": range(45, 67), "NEW": [*range(67, 80), *range(44, 30, -1)]}


def test_every_cell_is_its_blocks_owner_or_state() -> None:
    shot = snapshot(80, {"a": [1, 2, 3, 4], "b": [1, 2, 9]}, cached=(5, 6), fenced=(8,))
    drawn = cells(block_map(shot, Letters()))
    assert drawn == "#22AA++.~B" + "." * 70
    assert len(drawn) == shot.pool.total


def test_the_founders_picture() -> None:
    letters = Letters(["R0", "R1", "R2"])
    drawn = cells(block_map(snapshot(80, HOLE), letters))
    assert drawn == "#" + "A" * 22 + "." * 8 + "D" * 14 + "C" * 22 + "D" * 13


def test_shared_by_many_and_held_by_nobody_known() -> None:
    tables = {f"r{i}": [1] if i < 12 else [] for i in range(13)}
    shot = snapshot(5, {**tables, "x": [2], "y": [2], "z": [2]}, owners={3: 1})
    assert cells(block_map(shot, Letters())) == "#*3?."
    text = " ".join(line.plain for line in legend(shot, Letters()))
    assert "3 * owners: shared" in text


def test_a_row_begins_with_the_id_of_its_first_block() -> None:
    lines = block_map(snapshot(1456, {"a": range(1, 1000)}), Letters())
    labels = [int(line.plain.split()[0]) for line in lines[1:]]
    assert labels == list(range(0, 1456, 64))
    assert max(line.cell_len for line in lines) <= 80
    ruler, first = lines[0].plain, lines[1].plain
    assert [first.index("#"), *(first.index("A", ruler.index(column)) for column in ("16", "32", "48"))] == [
        ruler.index(column) for column in ("0", "16", "32", "48")
    ]


@pytest.mark.parametrize("width", [30, 50, 80])
def test_nothing_is_wider_than_asked(width: int) -> None:
    shot = snapshot(
        200, {"a long name\x1b[31m that steers": range(1, 150, 2), **{f"r{i}": [i * 2] for i in range(1, 40)}}
    )
    letters = Letters()
    lines = [*block_map(shot, letters, width), *legend(shot, letters, width), *totals(shot, max(width, 60))]
    assert max(line.cell_len for line in lines) <= max(width, 60)
    assert max(line.cell_len for line in picture(shot, letters)) <= 80
    assert not any("\x1b" in line.plain for line in picture(shot, letters))


def test_a_large_pool_is_summed_up_and_says_so() -> None:
    shot = snapshot(10_000, {"a": range(1, 5_000), "b": range(5_000, 5_004)})
    lines = block_map(shot, Letters())
    assert lines[0].plain.startswith("one cell stands for 3 blocks")
    drawn = cells(lines)
    assert len(drawn) == -(-10_000 // 3)
    assert drawn == "A" * 1667 + "B" + "." * 1666  # blocks 4,998 to 5,000 are a, a, b: one cell, mostly a
    assert len(lines) < 60


def test_letters_stay_through_pictures_and_begin_again() -> None:
    letters = Letters(["a", "b"])
    assert cells(block_map(snapshot(3, {"b": [1], "c": [2]}), letters)) == "#BC"
    assert letters.letter("a") == "A"
    many = Letters(str(i) for i in range(60))
    assert (many.letter("51"), many.letter("52")) == ("z", "A")


def test_strips_are_the_tables() -> None:
    lines = [line.plain.split() for line in strips(snapshot(80, {**HOLE, "later": ()}), Letters())]
    assert lines[0] == ["name", "state", "tokens", "blocks", "waste", "table"]
    assert lines[3] == ["C", "NEW", "running", "429", "27", "3", "67-79", "44-31"]
    assert lines[4] == ["D", "later", "waiting", "0", "0", "0", "-"]


def test_a_long_strip_goes_on_below_its_table() -> None:
    lines = [line.plain for line in strips(snapshot(400, {"odd": range(1, 200, 2)}), Letters(), 80)]
    column = lines[0].index("table")
    assert len(lines) > 5
    assert all(line[:column].strip() == "" for line in lines[2:])
    assert " ".join(line[column:].strip() for line in lines[1:]).split() == [str(i) for i in range(1, 200, 2)]


def test_totals_add_up() -> None:
    shot = snapshot(80, {"a": [1, 2, 3, 4], "b": [1, 2, 9]}, cached=(5, 6), fenced=(8,))
    text = "\n".join(line.plain for line in totals(shot))
    assert "80 blocks = 1 reserved + 79 usable; 5 held, 2 cached, 71 free, 1 fenced" in text
    assert "73 reclaimable; 106 tokens in tables; 6 slots of waste" in text


def test_colours_on_a_terminal_and_none_in_a_pipe() -> None:
    shot = snapshot(80, HOLE)

    def printed(**options: object) -> str:
        console = Console(width=80, **options)  # type: ignore[arg-type]
        with console.capture() as captured:
            for line in picture(shot):
                console.print(line)
        return captured.get()

    plain = printed(force_terminal=False, color_system=None)
    assert "\x1b" not in plain
    assert "\x1b[" in printed(force_terminal=True, color_system="standard")


def test_whoever_draws_for_days_forgets_names_and_goes_on_with_the_letters() -> None:
    letters = Letters(["a", "b", "c"])
    letters.keep(["b", "never met"])
    assert (list(letters), letters.remembered) == (["b"], 1)
    assert (letters.letter("b"), letters.letter("d"), letters.letter("a")) == ("B", "D", "E")


def test_a_map_of_few_rows() -> None:
    shot = snapshot(1000, {"a": range(1, 501)})
    lines = block_map(shot, Letters(), rows=4)
    assert lines[0].plain.startswith("one cell stands for 4 blocks")
    assert cells(lines) == "A" * 125 + "." * 125
    assert len(block_map(shot, Letters(), rows=16)) == len(block_map(shot, Letters())) == 17
