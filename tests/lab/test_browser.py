"""The page in a real Chromium: the slider moves, and the map is what the journal says."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from html_tree import Tag, read
from lab.pages import HOSTILE, expand, renamed
from pellucid.kv.fold import Fold
from pellucid.kv.snapshot import Snapshot
from pellucid.lab.html import page as report_page
from pellucid.lab.pellucid_subject import PellucidLaboratory
from pellucid.lab.recorder import Recorder, tokens
from pellucid.lab.recording import Recording
from pellucid.lab.trial import Plays, report
from pellucid.model import LoadedModel
from pellucid.view import Letters, block_map
from view.pictures import cells

pytestmark = pytest.mark.slow
playwright = pytest.importorskip("playwright.sync_api", reason="needs playwright: pip install 'pellucid[browser]'")

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome", "chrome"))), None)
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
PHONE, DESK = {"width": 400, "height": 800}, {"width": 1280, "height": 900}


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    if CHROMIUM is None:
        pytest.skip("no Chromium here: install chromium (on Debian: apt-get install chromium)")
    with playwright.sync_playwright() as driver:
        started = driver.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield started
        started.close()


class Opened:
    """A page in the browser, and all that it asked for or complained about."""

    def __init__(self, browser: Any, html: str, folder: Path, **options: Any) -> None:
        file = folder / "report.html"
        file.write_text(html, encoding="utf-8")
        self.page = browser.new_page(**{"viewport": DESK, **options})
        self.said: list[str] = []
        self.asked: list[str] = []
        self.page.on("console", lambda message: self.said.append(message.text))
        self.page.on("pageerror", lambda error: self.said.append(str(error)))
        self.page.on("dialog", lambda dialog: self.said.append(dialog.message))
        self.page.on("request", lambda request: self.asked.append(request.url))
        self.page.goto(file.as_uri())
        self.address = file.as_uri()

    def part(self, scenario: str, selector: str) -> Any:
        return self.page.locator(f"#play-{scenario.replace(' ', '-')} {selector}")

    def move(self, scenario: str, moment: int) -> None:
        self.part(scenario, "input").fill(str(moment))

    def map(self, scenario: str) -> list[str]:
        """What each cell means, by the legend beside it."""
        meanings = self.part(scenario, ".legend li").evaluate_all(
            "all => all.map(e => [e.firstChild.className + e.firstChild.textContent, e.lastChild.textContent])"
        )
        cells = self.part(scenario, ".map b").evaluate_all("all => all.map(e => e.className + e.textContent)")
        return [dict(meanings)[cell] for cell in cells]

    def tables(self, scenario: str) -> dict[str, list[int]]:
        """The ids on the strips, without the numbers of owners before them."""
        rows = self.part(scenario, "tbody tr").evaluate_all(
            """rows => rows.map(row => [row.querySelector('.named span').textContent,
                [...row.querySelectorAll('.strip > span')].map(box => box.lastChild.textContent).join(' ')])"""
        )
        return {name: expand(strip.replace("–", "-")) for name, strip in rows}

    def quiet(self) -> None:
        assert self.said == []
        assert self.asked == [self.address]


def folded(recording: Recording) -> list[Snapshot]:
    """The snapshot at every moment, folded from the journal and not read from the frames."""
    assert recording.acts is not None
    base = recording.frames[0].snapshot
    fold, snapshots = Fold(base), []
    acts = iter(recording.acts)
    for frame in recording.frames:
        while fold.acts < frame.snapshot.acts:
            fold.apply(next(acts))
        snapshots.append(fold.snapshot())
    return snapshots


def meaning(shot: Snapshot, block: int) -> str:
    owners = shot.owners_of(block)
    if len(owners) > 1:
        return f"shared by {len(owners)}"
    return owners[0] if owners else str(shot.pool.state(block))


def outline(tag: Tag) -> list[Any]:
    """Everything but the order of attributes and the spaces in styles."""
    attributes = sorted((name, (value or "").replace(" ", "").rstrip(";")) for name, value in tag.attributes.items())
    return [tag.name, attributes, [child if isinstance(child, str) else outline(child) for child in tag.children]]


def steps_of(recording: Recording) -> list[int]:
    """The first and the last moment, and four between, in no order."""
    last = len(recording.frames) - 1
    return [last, 0, *sorted({last // 2, last // 3, 2 * last // 3, 1}, key=lambda moment: -moment % 3)]


@pytest.mark.parametrize("mode", ["plays", "running_ahead"])
def test_the_map_follows_the_slider_as_the_journal_says(
    browser: Any, tmp_path: Path, request: pytest.FixtureRequest, mode: str
) -> None:
    plays: Plays = request.getfixturevalue(mode)
    opened = Opened(browser, report_page(report(plays), plays.recordings), tmp_path)
    for name, recording in plays.recordings.items():
        snapshots = folded(recording)
        for moment in [*steps_of(recording), *(range(5) if name == "aborted" else ())]:
            opened.move(name, moment)
            shot = snapshots[moment]
            assert opened.map(name) == [meaning(shot, block) for block in range(shot.pool.total)], (name, moment)
            assert opened.tables(name) == {request.name: list(request.blocks) for request in shot.requests}
            totals = opened.part(name, ".totals").inner_text()
            assert totals.startswith(f"{shot.pool.held} blocks held, {shot.pool.cached} cached, {shot.pool.free} free")
            text = opened.part(name, "output").inner_text()
            assert text.startswith(f"Step {recording.frames[moment].step} of {recording.steps}")
    opened.quiet()


def test_the_script_draws_as_python_does(browser: Any, tmp_path: Path, running_ahead: Plays) -> None:
    """Without the script the page shows each timeline at its peak; with it, the same."""
    html = report_page(report(running_ahead), running_ahead.recordings)
    pictures = []
    for script in (True, False):
        opened = Opened(browser, html, tmp_path, java_script_enabled=script)
        pictures.append([outline(read(one.inner_html())) for one in opened.page.locator(".play .picture").all()])
        assert opened.page.locator(".play input").first.is_visible() is script
        opened.quiet()
    assert pictures[0] == pictures[1]
    assert len(pictures[0]) == len(running_ahead.recordings)


def test_a_very_large_pool_is_summed_up_as_in_the_terminal(browser: Any, tmp_path: Path, tiny: LoadedModel) -> None:
    recorder = Recorder("large", PellucidLaboratory(tiny, num_gpu_blocks_override=5000, max_model_len=400)())
    for number in range(5):
        recorder.add(f"R{number}", tokens(260, f"{number}", 50 + 40 * number), 3)
    recorder.until(lambda: not recorder.snapshot.requests, limit=20)
    recording = recorder.recording()
    plays = Plays()
    plays.recordings = {"large": recording}
    opened = Opened(browser, report_page(report(plays, ()), plays.recordings), tmp_path)
    letters = Letters()
    for moment, frame in enumerate(recording.frames):
        opened.move("large", moment)
        drawn = "".join(opened.page.locator("#play-large .map b").all_text_contents())
        assert drawn == cells(block_map(frame.snapshot, letters))
        assert len(drawn) == 2500
    opened.quiet()


def test_keyboard_buttons_pointer_and_links_move_it(browser: Any, tmp_path: Path, plays: Plays) -> None:
    opened = Opened(browser, report_page(report(plays), plays.recordings), tmp_path)
    page, slider = opened.page, opened.part("holes", "input")
    section = page.locator("#play-holes")

    def at() -> int:
        assert section.locator(".timeline").evaluate("e => e.style.getPropertyValue('--at')") == slider.input_value()
        return int(slider.input_value())

    frames = plays.recordings["holes"].frames
    slider.fill("3")
    slider.focus()
    page.keyboard.press("ArrowRight")
    assert at() == 4
    moment = f"Step {frames[4].step} of {frames[-1].step}"
    assert (slider.get_attribute("aria-valuetext") or "").startswith(moment)
    section.locator(".back").click()
    assert at() == 3
    section.locator(".on").click()
    assert at() == 4
    box = section.locator(".plot").bounding_box()
    page.mouse.click(box["x"] + 1.5 * box["width"] / len(frames), box["y"] + 20)
    assert at() == 1
    page.locator("#claim-holes figcaption a").nth(1).click()
    assert at() == 2
    assert page.url.endswith("#play-holes")
    slider.fill(f"{len(frames) - 2}")
    section.locator(".run").click()
    assert section.locator(".run").inner_text() == "Pause"
    playwright.expect(slider).to_have_value(f"{len(frames) - 1}")
    playwright.expect(section.locator(".run")).to_have_text("Play")
    opened.quiet()


def test_hostile_names_do_not_run(browser: Any, tmp_path: Path, plays: Plays) -> None:
    result, recordings = renamed(report(plays), plays, {"alice": HOSTILE, "bob": "{names}<b onclick=alert(1)>"})
    opened = Opened(browser, report_page(result, recordings), tmp_path)
    for moment in range(len(recordings["sharing"].frames)):
        opened.move("sharing", moment)
    opened.move("sharing", 2)
    assert list(opened.tables("sharing")) == [HOSTILE, "{names}<b onclick=alert(1)>"]
    opened.page.locator("#play-sharing .map b").nth(4).hover()
    assert opened.page.locator("#play-sharing .map b").nth(4).get_attribute("title") == f"block 4: {HOSTILE}"
    assert opened.page.title() == "PagedAttention, put to the proof"
    assert opened.page.locator("img").count() == 0
    opened.quiet()


def test_even_a_script_that_got_in_would_not_run(browser: Any, tmp_path: Path, plays: Plays) -> None:
    """The policy is a second wall: break the first one on purpose."""
    html = report_page(report(plays), plays.recordings)
    struck = html.replace("<nav", "<script>document.title='struck'</script><img src='http://127.0.0.1:9/x'><nav", 1)
    opened = Opened(browser, struck, tmp_path)
    assert opened.page.title() == "PagedAttention, put to the proof"
    assert len([text for text in opened.said if "Content Security Policy" in text]) == 2


@pytest.mark.parametrize("viewport", [PHONE, DESK], ids=["400", "1280"])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_nothing_is_wider_than_the_window(
    browser: Any, tmp_path: Path, running_ahead: Plays, viewport: dict[str, int], scheme: str
) -> None:
    html = report_page(report(running_ahead), running_ahead.recordings)
    opened = Opened(browser, html, tmp_path, viewport=viewport, color_scheme=scheme)
    assert opened.page.evaluate("document.documentElement.scrollWidth") == viewport["width"]
    light = opened.page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert light is (scheme == "light")


def test_paper_has_everything_unfolded_and_no_controls(browser: Any, tmp_path: Path, plays: Plays) -> None:
    opened = Opened(browser, report_page(report(plays), plays.recordings), tmp_path, color_scheme="dark")
    opened.page.emulate_media(media="print")
    opened.page.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert opened.page.locator("details > pre").first.is_visible()
    assert opened.page.locator("details:not([open])").count() == 0
    assert not opened.page.locator("button:visible, input:visible").count()
    assert opened.page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert opened.page.locator("#play-holes output").is_visible()
