"""How a notebook shows proofs and reports."""

from __future__ import annotations

from pellucid.lab.html import proof_section, report_sections, style
from pellucid.lab.proof import Proof
from pellucid.lab.terminal import lines
from pellucid.lab.trial import Report
from pellucid.view.html import Raw, alone, element


def as_html(shown: Proof | Report) -> str:
    """The sections of the page (`pellucid.lab.html.page`), without timelines."""
    sections = report_sections(shown) if isinstance(shown, Report) else [proof_section(shown)]
    return alone(element("style", Raw(style())), *sections)


def as_text(shown: Proof | Report) -> str:
    """A report as `pellucid prove` prints it, a proof in a sentence."""
    return "\n".join(line.plain.rstrip() for line in lines(shown)) if isinstance(shown, Report) else repr(shown)
