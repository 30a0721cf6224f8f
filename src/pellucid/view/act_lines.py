"""The journal in lines: one act a line, as a person reads it.

Acts and their fields keep the names that they have in the journal, whatever the language.
"""

from __future__ import annotations

from typing import Any

from rich.text import Text

from pellucid.kv.acts import AnyAct, Miss, public_fields
from pellucid.view.letters import shown
from pellucid.view.lines import wrapped
from pellucid.view.runs import runs
from pellucid.view.strips import NAME_WIDTH

BLOCKS = ("blocks", "revived", "fenced")


def act_lines(number: int, act: AnyAct, width: int = 80) -> list[Text]:
    """Act ``number`` of the journal: its kind, its request, then its other fields by name, mostly one line."""
    pieces = [shown(getattr(act, "request", ""), NAME_WIDTH)]
    pieces += [f"{name} {_value(name, value)}" for name, value in public_fields(act) if name not in ("step", "request")]
    head = f"{number:>4}  {type(act).__name__.lower():<9}  "
    words = wrapped("  ".join(pieces).strip(), width - len(head))
    return [Text.assemble((head if i == 0 else " " * len(head), "dim"), line) for i, line in enumerate(words)]


def _value(name: str, value: Any) -> str:
    if name in BLOCKS:
        return runs(value)
    if isinstance(value, tuple):
        return ", ".join(_value(name, each) for each in value) or "-"
    return f"{value.tokens} {value.reason}" if isinstance(value, Miss) else str(value)
