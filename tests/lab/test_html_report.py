"""The report as a page: complete, self-contained, and true to the recordings."""

from __future__ import annotations

import base64
import hashlib
import io
import json
import re
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from html_tree import Tag, read
from lab import faults
from lab.pages import HOSTILE, expand, renamed, timeline_data
from pellucid.errors import PageError
from pellucid.kv.block import BlockState
from pellucid.lab import CLAIMS, Report, prove
from pellucid.lab.html import page
from pellucid.lab.html.evidence import readable
from pellucid.lab.html.play import play_section
from pellucid.lab.html.timeline import Timeline
from pellucid.lab.notebook import as_html
from pellucid.lab.proof import Exhibit, Proof, Table, Verdict
from pellucid.lab.trial import Plays, report
from pellucid.lang import say
from pellucid.view import Letters, marks
from pellucid.view.html import written


@pytest.fixture(params=["plays", "running_ahead"])
def any_plays(request: pytest.FixtureRequest) -> Plays:
    plays: Plays = request.getfixturevalue(request.param)
    return plays


def tree(plays: Plays, **options: Any) -> Tag:
    return read(page(report(plays), plays.recordings, **options))


def with_proof(result: Report, proof: Proof) -> Report:
    return replace(result, claims=(proof,))


# -- what is on it ---------------------------------------------------------------------------------


def test_the_overview_leads_to_every_claim(plays: Plays) -> None:
    root = tree(plays)
    result = report(plays)
    links = root.one("nav").one("ol").all("a")
    assert [link.attributes["href"] for link in links] == [f"#claim-{proof.id}" for proof in result.claims]
    for link, proof in zip(links, result.claims, strict=True):
        section = root.by_id(f"claim-{proof.id}")
        assert link.text == f"✓proved{proof.title}"
        for text in (proof.sentence, proof.reason, proof.scope, *(value for fact in proof.facts for value in fact)):
            assert text in section.text
        assert [figure.one("figcaption").text.startswith(exhibit.title) for figure, exhibit in zip(
            section.all("figure"), proof.exhibits, strict=True)] == [True] * len(proof.exhibits)  # fmt: skip
        assert json.loads(section.one("details").one("pre").text) == json.loads(json.dumps(proof.evidence))


def test_every_link_leads_somewhere(plays: Plays) -> None:
    root = tree(plays)
    ids = [tag.attributes["id"] for tag in root.all() if "id" in tag.attributes]
    assert len(ids) == len(set(ids))
    assert {link.attributes["href"] for link in root.all("a")} <= {f"#{id_}" for id_ in ids}


def test_it_is_said_what_was_proved_on_what(plays: Plays) -> None:
    header = tree(plays).one("header")
    for text in ("pellucid 0.1.0", "tiny, float32 on cpu", "80 blocks of 16 tokens", "79 are usable", "0.6 MiB"):
        assert text in header.text


def test_a_refuted_claim_shows_why(plays: Plays) -> None:
    other = Plays()
    other.recordings = {**plays.recordings, "holes": faults.another_token(plays.recordings["holes"], "NEW")}
    section = tree(other).by_id("claim-holes")
    assert section.one(class_="verdict").text == "✗refuted"
    assert "Output token 3 of NEW differs" in section.one(class_="reason").text
    assert "please report it" in tree(other).one("nav").text
    assert "please report it" not in tree(plays).one("nav").text


def test_any_finding_can_be_shown(plays: Plays) -> None:
    """Tables, facts that go on, no evidence, a picture that no recording has."""
    shot = plays.recordings["holes"].frames[1].snapshot
    proof = Proof(
        id="any",
        title=say("Any <claim>"),
        sentence=say("It holds & holds."),
        verdict=Verdict.NOT_OBSERVABLE,
        reason=say("{n} things did not arise.", n=3),
        facts=(("", "first"), ("name", "one"), ("", "two")),
        exhibits=(Exhibit(say("A moment"), replace(shot, step=99)),),
        tables=(Table((say("name"), say("n")), (("a <b>", "1,234"), ("c", "-5.6 %"))), Table(("empty",), ())),
    )
    root = read(page(with_proof(report(plays), proof), plays.recordings))
    section = root.by_id("claim-any")
    assert [cell.text for cell in section.all("table", "data")[0].all("td")] == ["a <b>", "1,234", "c", "-5.6 %"]
    assert [cell.classes for cell in section.all("table", "data")[0].all("td")] == [[], ["n"]] * 2
    assert [(row.one("dt").text, [value.text for value in row.all("dd")]) for row in section.one("dl").all("div")] == [
        ("", ["first"]),
        ("name", ["one", "two"]),
    ]
    assert not section.all("a")  # the moment is in no timeline, and nobody knows which runs the claim has read


def test_evidence_is_json_with_short_lists_on_a_line() -> None:
    value = {"table": list(range(50)), "rows": [{"name": "a", "ids": [1, 2]}, {"name": "b" * 90, "ids": []}], "n": 1}
    text = readable(value)
    assert json.loads(text) == value
    assert len(text.splitlines()) == 11, text


# -- self-contained --------------------------------------------------------------------------------


def test_nothing_is_loaded_from_anywhere(plays: Plays) -> None:
    html = page(report(plays), plays.recordings)
    root = read(html)
    assert {tag.name for tag in root.all()}.isdisjoint({"link", "img", "iframe", "object", "embed", "base", "audio"})
    for tag in root.all():
        assert not {"src", "srcset", "action", "ping"} & tag.attributes.keys()
        assert (tag.attributes.get("href") or "#").startswith("#")
        assert not any(name.startswith("on") for name in tag.attributes)
    assert "http:" not in html
    assert "https:" not in html
    for sheet in root.all("style"):
        assert "url(" not in sheet.text
        assert "@import" not in sheet.text


def test_the_policy_allows_the_one_script_there_is(plays: Plays) -> None:
    root = tree(plays)
    (policy,) = [tag for tag in root.all("meta") if tag.attributes.get("http-equiv") == "Content-Security-Policy"]
    scripts = [tag for tag in root.all("script") if tag.attributes.get("type") != "application/json"]
    (digest,) = [base64.b64encode(hashlib.sha256(script.text.encode()).digest()).decode() for script in scripts]
    assert (policy.attributes["content"] or "").split("; ") == [
        "default-src 'none'",
        "style-src 'unsafe-inline'",
        f"script-src 'sha256-{digest}'",
        "form-action 'none'",
    ]


def test_hostile_names_change_nothing_but_text(plays: Plays) -> None:
    names = {"alice": HOSTILE, "bob": "<script>", "NEW": "{step} ' \""}
    plain, hostile = (read(page(*renamed(report(plays), plays, which))) for which in ({}, names))
    assert [tag.name for tag in hostile.all()] == [tag.name for tag in plain.all()]
    assert HOSTILE in hostile.by_id("play-sharing").one(class_="legend").text


def test_the_language_is_named(plays: Plays) -> None:
    assert tree(plays).one("html").attributes["lang"] == "en"
    assert tree(plays, language="ko").one("html").attributes["lang"] == "ko"


# -- timelines -------------------------------------------------------------------------------------


def states(data: dict[str, Any]) -> list[tuple[list[list[str]], dict[str, list[int]]]]:
    """What the map and the tables show at each moment, replayed from the changes."""
    looks: list[list[str]] = [["", "", ""]] * data["blocks"]
    tables: dict[str, list[int]] = {}
    result = []
    for _, _, _, changes, rows, _ in data["moments"]:
        for first, length, look in changes:
            looks[first : first + length] = [data["cells"][look]] * length
        tables = {
            data["requests"][request][2]: tables.get(data["requests"][request][2], [])[:kept] + expand(rest)
            for request, _, _, kept, rest in rows
        }
        result.append((list(looks), tables))
    return result


def expected_sign(recording_shot: Any, block: int) -> str:
    """What stands for a block: who holds it, how many do, or its state."""
    pool = recording_shot.pool
    if pool.state(block) is not BlockState.HELD:
        return str(pool.state(block))
    owners = recording_shot.owners_of(block)
    return owners[0] if len(owners) == 1 else f"shared by {len(owners)}"


def test_the_data_of_every_timeline_is_the_recording(any_plays: Plays) -> None:
    root = tree(any_plays)
    for name, recording in any_plays.recordings.items():
        data = timeline_data(root, name)
        assert [moment[0] for moment in data["moments"]] == [frame.step for frame in recording.frames]
        for frame, moment, (looks, tables) in zip(recording.frames, data["moments"], states(data), strict=True):
            shot = frame.snapshot
            assert [look[2] for look in looks] == [expected_sign(shot, block) for block in range(shot.pool.total)]
            assert tables == {request.name: list(request.blocks) for request in shot.requests}
            assert [row[2] for row in moment[4]] == [request.slots for request in shot.requests]
            assert [data["statuses"][row[1]] for row in moment[4]] == [str(request.status) for request in shot.requests]
            assert moment[1:3] == [list(frame.added), list(frame.aborted)]
            pool, tokens = shot.pool, sum(request.slots for request in shot.requests)
            assert moment[5] == [pool.held, pool.cached, pool.free, pool.fenced, tokens, shot.waste]


def test_fenced_blocks_were_among_them(running_ahead: Plays) -> None:
    root = tree(running_ahead)
    looks = [look for name in running_ahead.recordings for look in timeline_data(root, name)["cells"]]
    assert ["~", "fenced", "fenced"] in looks


def test_the_drawing_covers_each_moment_of_each_block_once(any_plays: Plays) -> None:
    for recording in any_plays.recordings.values():
        timeline = Timeline(recording)
        covered = {}
        for patch in timeline.patches():
            for column in range(patch.start, patch.end):
                for cell in range(patch.first, patch.last + 1):
                    assert covered.setdefault((column, cell), patch.cell) is patch.cell
                    assert timeline.columns[column][cell] == patch.cell
        assert len(covered) == len(recording.frames) * recording.frames[0].snapshot.pool.total


def test_the_paths_are_the_patches(plays: Plays) -> None:
    drawing = tree(plays).by_id("play-holes").one("svg")
    assert drawing.attributes["viewbox"] == f"0 0 {len(plays.recordings['holes'].frames)} 80"
    (owner,) = [path for path in drawing.all("path") if path.one("title").text == "NEW"]
    assert owner.classes == ["k3"]
    numbers = re.findall(r"M(\d+) (\d+)H(\d+)V(\d+)H(\d+)z", owner.attributes["d"] or "")
    rows = {row for _, first, _, last, _ in numbers for row in range(int(first), int(last))}
    assert rows == {*range(67, 80), *range(31, 45)}


def test_it_stands_at_the_peak_and_draws_it(plays: Plays) -> None:
    frames = plays.recordings["holes"].frames
    section = tree(plays).by_id("play-holes")
    at = int(section.attributes["data-at"] or "")
    assert frames[at].snapshot.pool.held == max(frame.snapshot.pool.held for frame in frames)
    assert section.one("input").attributes["value"] == section.attributes["data-at"]
    text = "".join(cell.text for cell in section.one(class_="map").all("b"))
    letters = Letters(request.name for frame in frames for request in frame.snapshot.requests)
    assert text == "".join(mark.character for mark in marks(frames[at].snapshot, letters))
    assert section.one("output").text == f"Step {frames[at].step} of {frames[-1].step}"


def test_a_picture_leads_to_its_moment(plays: Plays) -> None:
    root, seen = tree(plays), 0
    for proof in report(plays).claims:
        for exhibit, figure in zip(proof.exhibits, root.by_id(f"claim-{proof.id}").all("figure"), strict=True):
            for link in figure.all("a"):
                name = (link.attributes["href"] or "").removeprefix("#play-").replace("-", " ")
                moment = int(link.attributes["data-moment"] or "")
                assert plays.recordings[name].frames[moment].snapshot == exhibit.snapshot
                seen += 1
    assert seen > 5


def test_what_is_too_much_is_thinned_and_says_so(plays: Plays) -> None:
    recording = plays.recordings["mixed"]
    timeline = Timeline(recording, most=80 * 8)
    assert timeline.stride == -(-len(recording.frames) // 8)
    assert timeline.frames[-1] is recording.frames[-1]
    assert len(timeline.frames) in (8, 9)
    text = read(written(play_section("mixed", "a run", timeline))).one(class_="note").text
    assert f"one in {timeline.stride} is shown, {len(timeline.frames)} in all" in text
    assert Timeline(recording).frames == list(recording.frames)


# -- the command -----------------------------------------------------------------------------------


def test_prove_writes_it_beside_the_report(tmp_path: Path) -> None:
    out, file = io.StringIO(), tmp_path / "report.html"
    assert prove("tiny", html=file, stream=out) == 0
    assert out.getvalue().splitlines()[-1] == f"The report as a page: {file}"
    assert out.getvalue().count(" PROVED ") == len(CLAIMS)
    assert len(read(file.read_text(encoding="utf-8")).all("section", "claim")) == len(CLAIMS)


def test_json_stays_one_object(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "report.html"
    assert prove("tiny", json=True, html=file) == 0
    out, err = capsys.readouterr()
    assert json.loads(out)["verdicts"]["proved"] == len(CLAIMS)
    assert str(file) in err
    assert file.is_file()


@pytest.mark.parametrize("place", [".", "nowhere/report.html"])
def test_a_place_that_cannot_be_is_refused_before_anything_runs(tmp_path: Path, place: str) -> None:
    with pytest.raises(PageError, match="name a file"):
        prove("no such model", html=tmp_path / place)


def test_a_notebook_gets_the_same_sections(plays: Plays) -> None:
    result = report(plays)
    whole, one = read(as_html(result)), read(as_html(result.claims[3]))
    assert len(whole.all("section", "claim")) == len(CLAIMS)
    assert one.one("section").one("h2").text == "✓proved" + result.claims[3].title
    assert not [tag for tag in (*whole.all(), *one.all()) if tag.name == "script"]
    assert repr(result.claims[3]).startswith("<Proof of 'holes': proved. NEW took 27 blocks")
    assert (
        repr(result) == f"<Report on tiny: {len(CLAIMS)} proved, 0 refuted, 0 not observable, in {result.steps} steps>"
    )
