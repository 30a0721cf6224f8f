from __future__ import annotations

import io
import json

import pytest

from pellucid.lab import prove


@pytest.mark.model
def test_the_claims_hold_on_a_real_model() -> None:
    out = io.StringIO()
    assert prove("smollm2-135m", json=True, stream=out) == 0
    report = json.loads(out.getvalue())
    assert report["about"]["model"] == "smollm2-135m"
    assert {claim["verdict"] for claim in report["claims"]} == {"proved"}
    holes = next(claim["evidence"] for claim in report["claims"] if claim["id"] == "holes")
    assert holes["table"] == [*range(67, 80), *range(44, 30, -1)]
