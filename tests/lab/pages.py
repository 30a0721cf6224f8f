"""Reports whose requests have other names, and reading a page's timelines back."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import msgspec

from html_tree import Tag
from pellucid.lab.recording import Recording
from pellucid.lab.trial import Plays, Report
from pellucid.lang import encoded

HOSTILE = "</script><img src=x onerror=\"document.title='struck'\">'&lt;<!--"


def renamed(result: Report, plays: Plays, names: Mapping[str, str]) -> tuple[Report, dict[str, Recording]]:
    """The same trial and report, as if requests had been called otherwise."""

    def rename(value: object) -> bytes:
        text = encoded(value)
        for old, new in names.items():
            text = text.replace(old, json.dumps(new)[1:-1])
        return text.encode()

    return (
        msgspec.json.decode(rename(result), type=Report),
        msgspec.json.decode(rename(plays.recordings), type=dict[str, Recording]),
    )


def expand(runs: str) -> list[int]:
    ids: list[int] = []
    for run in runs.split():
        first, _, last = run.partition("-")
        a, b = int(first), int(last or first)
        ids += range(a, b + 1) if a <= b else range(a, b - 1, -1)
    return ids


def timeline_data(page: Tag, scenario: str) -> dict[str, Any]:
    data: dict[str, Any] = json.loads(page.by_id(f"play-{scenario.replace(' ', '-')}").one("script").text)
    return data
