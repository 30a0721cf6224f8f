"""The whole page: heading, verdicts, claims, timelines."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping
from functools import cache
from importlib.resources import files

from pellucid.lab.claims import CLAIMS, NUMBERS
from pellucid.lab.html.claim import badge, facts, proof_section
from pellucid.lab.html.play import anchor, play_section, words
from pellucid.lab.html.timeline import Timeline
from pellucid.lab.proof import Exhibit, Proof
from pellucid.lab.recording import Recording
from pellucid.lab.scenarios import SCENARIOS
from pellucid.lab.trial import Report
from pellucid.lab.wording import BUG, TITLE, counts, engine_facts
from pellucid.lang import say
from pellucid.view.html import Element, Node, Raw, element, written
from pellucid.view.html import style as picture_style

ABOUT = {scenario.name: scenario.about for scenario in SCENARIOS}
NEEDS = {claim.id: [scenario.name for scenario in claim.needs] for claim in CLAIMS}


def page(report: Report, recordings: Mapping[str, Recording], language: str = "en") -> str:
    """``report`` as one self-contained HTML file, told in ``language``, with a timeline of each of ``recordings``.

    ``recordings`` are those it was judged on, by scenario (`pellucid.lab.trial.Plays.recordings`).
    """
    timelines = {name: Timeline(recording) for name, recording in recordings.items()}
    body = element(
        "body",
        element("main", *report_sections(report, timelines), _timelines(timelines)),
        words(),
        element("script", Raw(_file("report.js"))),
        class_="pellucid",
    )
    root = element("html", _head(), body, lang=language)
    return "<!doctype html>\n" + written(root, language) + "\n"


def _head() -> Element:
    """The policy lets nothing be loaded and no script run but ours, known by its hash."""
    script = base64.b64encode(hashlib.sha256(_file("report.js").encode()).digest()).decode()
    policy = f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{script}'; form-action 'none'"
    return element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", **{"http-equiv": "Content-Security-Policy", "content": policy}),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("meta", name="color-scheme", content="light dark"),
        element("title", TITLE),
        element("style", Raw(picture_style() + style())),
    )


def report_sections(report: Report, timelines: Mapping[str, Timeline] | None = None) -> list[Element]:
    """Heading, overview and claims; with ``timelines`` the claims link to the moments there."""
    shown = timelines or {}
    moments = {id(frame.snapshot): (name, i) for name, line in shown.items() for i, frame in enumerate(line.frames)}

    def link(exhibit: Exhibit) -> Node | None:
        if id(exhibit.snapshot) not in moments:
            return None
        name, moment = moments[id(exhibit.snapshot)]
        return element("a", say("in the timeline"), href=f"#{anchor(name)}", data_moment=moment)

    proofs = [proof_section(proof, NUMBERS.get(proof.id), link, _played(proof, shown)) for proof in report.claims]
    return [
        element("header", element("h1", TITLE), facts(engine_facts(report), "about")),
        _overview(report, bool(shown)),
        *proofs,
    ]


def _timelines(timelines: Mapping[str, Timeline]) -> Element:
    intro = say("Each run step by step. Move the slider, or choose a moment in the picture: map and tables follow.")
    plays = (play_section(name, ABOUT.get(name, name), timeline) for name, timeline in timelines.items())
    return element("section", element("h2", say("Timelines")), element("p", intro), *plays, id="plays")


def _overview(report: Report, with_timelines: bool) -> Element:
    lines = (
        element("li", element("a", badge(proof.verdict), element("span", proof.title), href=f"#claim-{proof.id}"))
        for proof in report.claims
    )
    timelines = [element("a", say("Timelines"), href="#plays")] if with_timelines else []
    bug = [element("p", BUG)] if report.exit_status else []
    return element(
        "nav",
        element("ol", *lines),
        *bug,
        element("p", element("span", counts(report)), *timelines, class_="counts"),
        aria_label=say("verdicts"),
    )


def _played(proof: Proof, timelines: Mapping[str, Timeline]) -> list[Node]:
    """Links to the runs that the claim was judged on."""
    names = [name for name in NEEDS.get(proof.id, ()) if name in timelines]
    if not names:
        return []
    links = (element("a", ABOUT[name], href=f"#{anchor(name)}") for name in names)
    return [element("p", element("span", say("Seen in:")), *links, class_="played")]


def style() -> str:
    """The style sheet of claims and timelines, beside that of pictures."""
    return _file("report.css")


@cache
def _file(name: str) -> str:
    return files("pellucid.lab.html").joinpath(name).read_text(encoding="utf-8")
