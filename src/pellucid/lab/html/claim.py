"""One claim of the page: verdict, sentence, reason, tables, facts, pictures, evidence."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator

from pellucid.lab.html.evidence import readable
from pellucid.lab.proof import Exhibit, Proof, Table, Verdict
from pellucid.lab.wording import scope
from pellucid.lang import say
from pellucid.view import Letters
from pellucid.view.html import Element, Node, element, picture

SIGNS = {Verdict.PROVED: "✓", Verdict.REFUTED: "✗", Verdict.NOT_OBSERVABLE: "?"}
NUMBER = re.compile(r"[\s\d.,:%×+−/-]*\d[\s\d.,:%×+−/-]*")

Link = Callable[[Exhibit], Node | None]
"""Where on the page the moment of an exhibit can be seen among its neighbours."""


def badge(verdict: Verdict) -> Element:
    """The verdict as a coloured word with a sign."""
    kind = verdict.value.replace(" ", "-")
    return element("span", element("span", SIGNS[verdict], aria_hidden="true"), verdict.word, class_=f"verdict {kind}")


def proof_section(
    proof: Proof, number: int | None = None, link: Link = lambda exhibit: None, ending: Iterable[Node] = ()
) -> Element:
    """``proof`` as a section with the anchor ``claim-ID``; ``ending`` stands before its evidence."""
    title = proof.title if number is None else say("{number}. {title}", number=number, title=proof.title)
    return element(
        "section",
        element("h2", badge(proof.verdict), element("span", title)),
        element("p", proof.sentence, class_="sentence"),
        element("p", proof.reason, class_="reason"),
        *([element("p", scope(proof), class_="scope")] if proof.scope else []),
        *map(_table, proof.tables),
        *([facts(proof.facts)] if proof.facts else []),
        *_exhibits(proof.exhibits, link),
        *ending,
        _evidence(proof),
        class_="claim",
        id=f"claim-{proof.id}",
    )


def facts(named: Iterable[tuple[str, str]], class_: str = "facts") -> Element:
    """A fact without a name goes on with the one before."""
    rows: list[tuple[str, list[str]]] = []
    for name, value in named:
        if name or not rows:
            rows.append((name, []))
        rows[-1][1].append(value)
    pairs = (element("div", element("dt", name), *(element("dd", each) for each in values)) for name, values in rows)
    return element("dl", *pairs, class_=class_)


def _table(table: Table) -> Element:
    columns = list(zip(*table.rows, strict=True)) or [()] * len(table.header)
    numeric = ["n" if column and all(map(NUMBER.fullmatch, column)) else None for column in columns]
    head = (element("th", text, scope="col", class_=kind) for text, kind in zip(table.header, numeric, strict=True))
    rows = (
        element("tr", *(element("td", text, class_=kind) for text, kind in zip(row, numeric, strict=True)))
        for row in table.rows
    )
    whole = element("table", element("thead", element("tr", *head)), element("tbody", *rows), class_="data")
    return element("div", whole, class_="wide", tabindex="0")


def _exhibits(exhibits: Iterable[Exhibit], link: Link) -> Iterator[Element]:
    letters = Letters()
    for exhibit in exhibits:
        there = link(exhibit)
        caption = element("figcaption", exhibit.title, *([" ", there] if there is not None else []))
        yield element("figure", caption, picture(exhibit.snapshot, letters), class_="exhibit")


def _evidence(proof: Proof) -> Element:
    summary = element("summary", say("Evidence of “{title}” as JSON", title=proof.title))
    return element("details", summary, element("pre", readable(proof.evidence), tabindex="0"), class_="evidence")
