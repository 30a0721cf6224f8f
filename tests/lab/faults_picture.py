"""docs/faults.svg: the matrix of claims and faults, drawn."""

from __future__ import annotations

from html import escape

from lab.matrix import CLAIM_IDS, FAULTS, Matrix
from pellucid.lab.proof import Verdict

CELL, LEFT, TOP, BOTTOM, RIGHT = 18, 244, 100, 40, 64

STYLE = """text { font: 12px system-ui, sans-serif; fill: #1f2328 }
.ground { fill: #ffffff } .band { fill: #f6f8fa }
.refuted { fill: #cf222e } .aimed { fill: #82071e } .unseen { fill: none; stroke: #9a6700; stroke-width: 1.5 }
.proved { fill: #afb8c1 }
@media (prefers-color-scheme: dark) {
text { fill: #e6edf3 } .ground { fill: #0d1117 } .band { fill: #161b22 }
.refuted { fill: #f85149 } .aimed { fill: #ff9492 } .unseen { stroke: #d29922 } .proved { fill: #484f58 }
}"""


def picture(matrix: Matrix) -> str:
    """Faults are rows and claims columns; marks differ in shape as well as in colour."""
    width = LEFT + CELL * len(CLAIM_IDS) + RIGHT
    height = TOP + CELL * len(FAULTS) + BOTTOM
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}">',
        "<title>Which claims each fault refutes</title>",
        f"<style>{STYLE}</style>",
        f'<rect class="ground" width="{width}" height="{height}"/>',
        *(_heading(column, claim) for column, claim in enumerate(CLAIM_IDS)),
        *(line for row in range(len(FAULTS)) for line in _row(row, matrix)),
        *_legend(TOP + CELL * len(FAULTS) + BOTTOM // 2),
        "</svg>",
    ]
    return "\n".join(lines) + "\n"


def _heading(column: int, claim: str) -> str:
    x, y = LEFT + CELL * column + CELL // 2 + 4, TOP - 8
    return f'<text x="{x}" y="{y}" transform="rotate(-50 {x} {y})">{escape(claim)}</text>'


def _row(row: int, matrix: Matrix) -> list[str]:
    fault, y = FAULTS[row], TOP + CELL * row
    band = f'<rect class="band" x="0" y="{y}" width="{LEFT + CELL * len(CLAIM_IDS) + 4}" height="{CELL}"/>'
    name = f'<text x="{LEFT - 8}" y="{y + 13}" text-anchor="end">{escape(fault.name)}</text>'
    marks = [
        _mark(LEFT + CELL * column + CELL // 2, y + CELL // 2, matrix[fault.name][claim], claim in fault.refutes)
        for column, claim in enumerate(CLAIM_IDS)
    ]
    return [*([band] if row % 2 == 0 else []), name, *marks]


def _mark(x: int, y: int, verdict: Verdict, aimed: bool) -> str:
    match verdict:
        case Verdict.REFUTED if aimed:
            return f'<rect class="aimed" x="{x - 7}" y="{y - 7}" width="14" height="14"/>'
        case Verdict.REFUTED:
            return f'<rect class="refuted" x="{x - 4}" y="{y - 4}" width="8" height="8"/>'
        case Verdict.NOT_OBSERVABLE:
            return f'<circle class="unseen" cx="{x}" cy="{y}" r="4.5"/>'
        case Verdict.PROVED:
            return f'<circle class="proved" cx="{x}" cy="{y}" r="1.5"/>'


def _legend(y: int) -> list[str]:
    lines, x = [], 16
    for verdict, aimed, words in (
        (Verdict.REFUTED, True, "refuted, as intended"),
        (Verdict.REFUTED, False, "refuted too"),
        (Verdict.NOT_OBSERVABLE, False, "not observable"),
        (Verdict.PROVED, False, "still proved"),
    ):
        lines += [_mark(x, y, verdict, aimed), f'<text x="{x + 12}" y="{y + 4}">{words}</text>']
        x += 40 + 7 * len(words)
    return lines
