"""What is drawn of a scene: exact text at 80 columns, and nothing too wide or too high anywhere."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from msgspec.structs import replace
from rich.text import Text

from pellucid.kv.acts import LookupKind, MissReason
from pellucid.kv.snapshot import FULL_ATTENTION, GroupView, HitCount, Snapshot
from pellucid.stream.messages import Watched
from pellucid.watch.dashboard import Dashboard
from pellucid.watch.rows import table
from pellucid.watch.scene import Scene
from view.pictures import cells, snapshot

WATCHED = Watched(engine="pellucid 0.1.0", model="tiny", pid=4242, started=0.0)


def drawn(*scenes: Scene, width: int = 80, height: int | None = None, language: str = "en") -> list[str]:
    lines = Dashboard(len(scenes), language).lines(scenes, width, height)
    return [line.plain.rstrip() for line in lines]


def busy(total: int = 80, *, more: int = 0) -> Snapshot:
    tables: dict[str, Sequence[int]] = {"alice": [1, 2, 3, 4], "bob": [1, 2, 9], "carol": []}
    shot = snapshot(total, tables | {f"r{i}": [20 + i] for i in range(more)}, cached=(5, 6), fenced=(8,))
    alice, bob, carol, *others = shot.requests
    return replace(
        shot,
        step=1234,
        requests=(
            replace(alice, cached_tokens=0),
            replace(bob, cached_tokens=32, preemptions=1),
            replace(carol, cached_tokens=None),
            *others,
        ),
        hits={LookupKind.FIRST: HitCount(4, 512, 320), LookupKind.RESUME: HitCount(1, 40, 16)},
        missed={MissReason.NEVER_SEEN: 100, MissReason.EVICTED: 92, MissReason.SHORT: 24},
    )


PICTURE = """\
pellucid 0.1.0   tiny   process 4242   rank 0   step 1,234   41.3 steps/s

      0                16               32               48
   0  #22AA++.~B...... ................ ................ ................
  64  ................
2 owners: shared   # reserved   + cached   . free   ~ fenced

  name     state     tokens blocks waste cached preemptions  table
A alice    running       61      4     3      0           0  1-4
B bob      running       45      3     3     32           1  1-2 9
C carol    waiting        0      0     0      -           0  -

pool    80 blocks of 16 tokens = 1 reserved + 79 usable
blocks  5 held, 2 cached, 71 free, 1 fenced
use     5 of 79 blocks (6.3%); 74 of 1,264 slots (5.9%); 6 wasted
hits    first 320 of 512 tokens (62.5%); resume 16 of 40 tokens (40.0%)
misses  never seen 100, evicted 92, shorter than a block 24"""


def test_a_picture_at_80_columns() -> None:
    assert "\n".join(drawn(Scene(snapshot=busy(), watched=WATCHED, rate=41.33))) == PICTURE


def test_it_fits_where_it_just_fits() -> None:
    height = PICTURE.count("\n") + 1
    assert "\n".join(drawn(Scene(snapshot=busy(), watched=WATCHED, rate=41.33), height=height)) == PICTURE


def test_what_does_not_hold_comes_first_and_is_red() -> None:
    scene = Scene(snapshot=busy(), watched=WATCHED, violations=tuple(f"I2: block {n} is wrong." for n in range(5)))
    lines = Dashboard(1).lines([scene])
    assert [line.plain for line in lines[:4]] == [
        " BROKEN  I2: block 0 is wrong.",
        " BROKEN  I2: block 1 is wrong.",
        " BROKEN  I2: block 2 is wrong.",
        "and 2 more that do not hold",
    ]
    assert all("color(160)" in str(line.spans) + str(line.style) for line in lines[:4])
    assert lines[4].plain.startswith("pellucid 0.1.0")


def test_what_was_dropped_and_the_end_are_said() -> None:
    scene = Scene(snapshot=busy(), watched=WATCHED, dropped=1200, ended="the engine's process ended")
    text = " ".join(drawn(scene))
    assert "dropped: 1,200 steps that this watcher was too slow for" in text
    assert "nothing more comes: the engine's process ended" in text


def test_an_engine_says_what_it_cannot_show() -> None:
    watched = replace(WATCHED, unobservable=("the order of re-use is not known.",))
    assert "not observable: the order of re-use is not known." in drawn(Scene(snapshot=busy(), watched=watched))


@pytest.mark.parametrize("more", [0, 5, 200])
@pytest.mark.parametrize("total", [300, 5_000])
@pytest.mark.parametrize(("width", "height"), [(80, 24), (80, 18), (60, 40), (200, 50), (80, 6), (30, 3)])
def test_nothing_is_wider_or_higher_than_the_terminal(width: int, height: int, total: int, more: int) -> None:
    scene = Scene(snapshot=busy(total, more=more), watched=WATCHED, rate=0.0, violations=("I1: too long " * 12,))
    for language in ("en", "ko", "zh"):
        lines = Dashboard(1, language).lines([scene], width, height)
        assert len(lines) <= height
        assert [line.plain for line in lines if line.cell_len > width] == []


def test_as_many_requests_as_fit_and_how_many_more() -> None:
    lines = drawn(Scene(snapshot=busy(300, more=50), watched=WATCHED), height=24)
    (heading,) = [i for i, line in enumerate(lines) if "waste" in line and "table" in line]
    (last,) = [i for i, line in enumerate(lines) if line.startswith("  and ")]
    shown = last - heading - 1
    assert shown > 3
    assert lines[last] == f"  and {53 - shown} more"
    assert len(lines) == 24


def test_a_large_pool_is_scaled_down_and_says_so() -> None:
    shot = snapshot(100_000, {"a": range(1, 50_000)})
    lines = drawn(Scene(snapshot=shot, watched=WATCHED), height=24)
    (said,) = [i for i, line in enumerate(lines) if line.startswith("one cell stands for")]
    each = int(lines[said].split()[4].replace(",", ""))
    end = lines.index(next(line for line in lines if line.startswith("# reserved") or ": shared" in line))
    marks = cells([Text(line) for line in lines[said + 1 : end]])
    assert len(marks) == -(-100_000 // each)
    assert abs(marks.count("A") * each - 50_000) <= each


def test_several_cores_stand_side_by_side_where_there_is_room() -> None:
    scenes = [Scene(snapshot=busy(more=n), watched=replace(WATCHED, rank=n, pid=4242 + n), rate=1.0) for n in range(3)]
    wide, narrow = drawn(*scenes, width=240), drawn(*scenes, width=80)
    assert all(f"rank {n}" in wide[0] for n in range(3))
    assert len(narrow) > 3 * 14
    below = [line for line in narrow if "rank" in line]
    assert [line[line.index("rank") :][:6] for line in below] == ["rank 0", "rank 1", "rank 2"]
    assert len(drawn(*scenes, width=80, height=60)) <= 60


def test_each_kv_group_has_its_own_table_and_a_window_leaves_places() -> None:
    shot = busy()
    groups = (GroupView(FULL_ATTENTION, 16), GroupView("sliding window", 16, 32))
    requests = tuple(
        replace(request, tables=(request.tables[0], (0, 0, 11, 12)[: len(request.tables[0])]))
        for request in shot.requests
    )
    lines = drawn(Scene(snapshot=replace(shot, groups=groups, requests=requests), watched=WATCHED))
    row = next(i for i, line in enumerate(lines) if line.startswith("A alice"))
    assert lines[row : row + 3] == [
        "A alice    running       61      6     6      0           0",
        "    0 full attention     1-4",
        "    1 sliding window 32  ·2 11-12",
    ]


@pytest.mark.parametrize(
    ("blocks", "text"), [((), "-"), ((0, 7), "· 7"), ((0, 0, 0, 3, 4, 0), "·3 3-4 ·"), ((9, 8, 7), "9-7")]
)
def test_a_table_in_characters(blocks: tuple[int, ...], text: str) -> None:
    assert table(blocks) == text


def test_a_name_cannot_steer_the_terminal() -> None:
    shot = snapshot(20, {"\x1b[2Jevil\nname": [1]})
    watched = replace(WATCHED, model="\x1b[31m", unobservable=())
    lines = Dashboard(1).lines([Scene(snapshot=shot, watched=watched, violations=("I1: '\x1b[2J' \n is wrong",))])
    assert not any(set(line.plain) & set("\x1b\n") for line in lines)
