"""Snapshots drawn as HTML: the same marks as in the terminal, and nothing that a name could smuggle in."""

from __future__ import annotations

import json
import re

import pytest
from rich.color import Color

from html_tree import read
from pellucid.kv.snapshot import Snapshot
from pellucid.lang import say
from pellucid.view import Letters, marks, runs
from pellucid.view.html import Json, Raw, alone, block_map, cells, element, picture, style, tables, written
from pellucid.view.html.tables import table_of
from pellucid.view.letters import COLOURS
from view.pictures import snapshot

HOSTILE = '</script></style><img src=x onerror="alert(1)">\'&amp;<!--'
BUSY = snapshot(
    80, {"a": [1, 2, 3, 4], "b": [1, 2, 9], "later": ()}, cached=(5, 6), fenced=(8,), owners={20: 1, 21: 12}
)


def drawn(shot: Snapshot) -> str:
    letters = Letters()
    return written(picture(shot, letters))


@pytest.mark.parametrize("shot", [BUSY, snapshot(5, {}), snapshot(1456, {"a": range(1, 1000), "b": range(999, 1200)})])
def test_the_marks_are_those_of_the_terminal(shot: Snapshot) -> None:
    expected = "".join(mark.character for mark in marks(shot, Letters()))
    assert "".join(cell.character for cell in cells(shot, Letters())) == expected
    assert "".join(cell.text for cell in read(drawn(shot)).one(class_="map").all("b")) == expected


def test_each_state_has_a_look_and_a_meaning() -> None:
    tree = read(drawn(BUSY))
    looks = {cell.text: cell.classes for cell in tree.one(class_="map").all("b")}
    assert looks == {
        "#": ["reserved"], "2": ["shared"], "A": ["k0"], "B": ["k1"], "+": ["cached"], ".": ["free"],
        "~": ["fenced"], "?": ["unknown"], "*": ["shared"],
    }  # fmt: skip
    meanings = {entry.one("b").text: entry.one("span").text for entry in tree.one(class_="legend").all("li")}
    assert list(meanings) == ["A", "B", "*", "2", "?", "#", "+", ".", "~"]
    assert (meanings["A"], meanings["2"], meanings["~"]) == ("a", "shared by 2", "fenced")


def test_a_group_begins_with_the_id_of_its_first_block() -> None:
    groups = read(drawn(snapshot(80, {}))).one(class_="map").all("span")
    assert [group.one("i").text for group in groups] == ["0", "16", "32", "48", "64"]
    assert {len(group.all("b")) for group in groups} == {16}


def test_a_large_pool_is_summed_up_and_says_so() -> None:
    tree = read(written(block_map(snapshot(10_000, {"a": range(1, 5_000), "b": range(5_000, 5_004)}), Letters())))
    assert tree.one(class_="note").text.startswith("one cell stands for 3 blocks")
    text = "".join(cell.text for cell in tree.one(class_="map").all("b"))
    assert text == "A" * 1667 + "B" + "." * 1666


def test_strips_are_the_tables_in_logical_order() -> None:
    shot = snapshot(80, {"a": [*range(67, 80), *range(44, 30, -1)], "b": [70, 5, 7], "c": [9, 10, 70]})
    tree = read(written(tables(shot, Letters())))
    strips = [[box.text for box in strip.children] for strip in tree.all(class_="strip")]
    assert strips == [["67–69", "370", "71–79", "44–31"], ["370", "5", "7"], ["9–10", "370"]]
    read_back = " ".join(box.removeprefix("3") if box == "370" else box.replace("–", "-") for box in strips[0])
    assert read_back == "67-69 70 71-79 44-31"
    widths = [box.attributes["style"] for box in tree.all(class_="strip")[0].children]
    assert widths == ["--n:3", "--n:1", "--n:9", "--n:14"]
    row = [cell.text for cell in tree.all("tr")[1].children][:5]
    assert row == ["Aa", "running", "429", "27", "3"]


def test_a_request_alone_shows_its_table() -> None:
    request = BUSY.request("b")
    tree = read(alone(table_of(request)))
    assert [box.text for box in tree.one(class_="strip").children] == ["1–2", "9"]
    assert runs(request.blocks) == "1-2 9"


def test_totals_add_up() -> None:
    text = read(drawn(snapshot(80, {"a": [1, 2, 3, 4], "b": [1, 2, 9]}, cached=(5, 6), fenced=(8,)))).one("p").text
    assert text == "5 blocks held, 2 cached, 71 free, 1 fenced; 106 tokens in tables, 6 slots of waste."


def test_hostile_names_stay_text() -> None:
    tree = read(drawn(snapshot(20, {HOSTILE: [1, 2]})))
    assert not tree.all("img")
    assert not tree.all("script")
    assert tree.one(class_="named").text == "A" + HOSTILE


def test_what_would_steer_is_replaced() -> None:
    html = written(element("p", "a\u202eb\x00c\ud800d", title="e\u2066f"))
    assert html == '<p title="e\ufffdf">a\ufffdb\ufffdc\ufffdd</p>'
    html.encode()


def test_json_cannot_end_its_script() -> None:
    value = {"name": HOSTILE, "list": ["<!--", "&lt;"]}
    html = written(element("script", Json(value), type="application/json"))
    assert html.count("<") == 2
    assert json.loads(read(html).one("script").text) == value


def test_raw_is_the_only_way_around_escaping() -> None:
    assert written(element("style", Raw("a > b"))) == "<style>a > b</style>"
    assert written(element("style", "a > b")) == "<style>a &gt; b</style>"


def test_attributes_are_told_left_out_or_bare() -> None:
    assert written(element("i", class_=None, hidden=True, aria_label=say("{n} blocks", n=3))) == (
        '<i hidden aria-label="3 blocks"></i>'
    )


def test_it_is_told_in_the_language_it_is_written_in(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "pellucid.lang.catalogue.catalogue", {"ko": {"held": "보유", "{n} blocks": "블록 {n}개"}, "en": {}}.__getitem__
    )
    node = element("p", say("{n} blocks", n=3), title=say("held"))
    assert written(node, "ko") == '<p title="보유">블록 3개</p>'
    assert written(node) == '<p title="held">3 blocks</p>'
    assert written(Json([say("held")]), "ko") == json.dumps(["보유"])


# -- colours ---------------------------------------------------------------------------------------


def colours(name: str) -> tuple[str, str]:
    """A variable of the style sheet in the light and in the dark scheme."""
    value = re.search(rf"--{name}: (?:light-dark\((#\w+), (#\w+)\)|(#\w+));", style())
    assert value is not None, name
    return (value[1], value[2]) if value[1] else (value[3], value[3])


def contrast(one: str, other: str) -> float:
    """As WCAG 2 defines it."""

    def luminance(colour: str) -> float:
        parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
        linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    darker, lighter = sorted(map(luminance, (one, other)))
    return (lighter + 0.05) / (darker + 0.05)


def test_the_colours_of_owners_are_those_of_the_terminal() -> None:
    for number, colour in enumerate(COLOURS):
        assert colours(f"k{number}")[0] == Color.parse(colour).get_truecolor().hex


@pytest.mark.parametrize("scheme", [0, 1], ids=["light", "dark"])
def test_every_letter_can_be_read(scheme: int) -> None:
    pairs = [(f"k{number}", "on-owner") for number in range(len(COLOURS))]
    pairs += [(kind, f"on-{kind}") for kind in ("shared", "reserved", "cached", "fenced", "unknown")]
    pairs += [("paper", "ink"), ("paper", "faint"), ("paper", "on-free")]
    for paper, ink in pairs:
        assert contrast(colours(paper)[scheme], colours(ink)[scheme]) >= 4.5, (paper, ink)
