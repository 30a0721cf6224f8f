"""The lab: claims about PagedAttention, put to the proof on a real engine.

A `Subject` is what an engine must offer, a `Scenario` what is asked of it, a `Recording` what was
seen. A `Claim` judges recordings; a `Proof` is its verdict, with scope and evidence. `prove` does it
all. Names are imported when first used, so that the command line starts quickly.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pellucid.lab.claim import Claim as Claim
    from pellucid.lab.claims import CLAIMS as CLAIMS
    from pellucid.lab.command import prove as prove
    from pellucid.lab.proof import Proof as Proof
    from pellucid.lab.proof import Verdict as Verdict
    from pellucid.lab.recording import Frame as Frame
    from pellucid.lab.recording import Recording as Recording
    from pellucid.lab.subject import About as About
    from pellucid.lab.subject import Laboratory as Laboratory
    from pellucid.lab.subject import Output as Output
    from pellucid.lab.subject import Subject as Subject
    from pellucid.lab.trial import Report as Report

_HOME = {
    "CLAIMS": "claims",
    "About": "subject",
    "Claim": "claim",
    "Frame": "recording",
    "Laboratory": "subject",
    "Output": "subject",
    "Proof": "proof",
    "Recording": "recording",
    "Report": "trial",
    "Subject": "subject",
    "Verdict": "proof",
    "prove": "command",
}

__all__ = [
    "CLAIMS",
    "About",
    "Claim",
    "Frame",
    "Laboratory",
    "Output",
    "Proof",
    "Recording",
    "Report",
    "Subject",
    "Verdict",
    "prove",
]


def __getattr__(name: str) -> object:
    if name not in _HOME:
        raise AttributeError(f"module 'pellucid.lab' has no attribute {name!r}")
    return getattr(importlib.import_module(f"pellucid.lab.{_HOME[name]}"), name)
