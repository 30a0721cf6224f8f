"""Evidence as JSON that a person can read: short lists stay on one line."""

from __future__ import annotations

import json
from typing import Any

LINE = 100


def readable(value: Any, indent: str = "") -> str:
    """``value`` as JSON, with a line for each entry of what does not fit on one."""
    line = json.dumps(value, ensure_ascii=False)
    if not isinstance(value, dict | list | tuple) or len(indent) + len(line) <= LINE:
        return line
    deeper = indent + "  "
    if isinstance(value, dict):
        entries = [f"{json.dumps(key, ensure_ascii=False)}: {readable(each, deeper)}" for key, each in value.items()]
        return f"{{\n{deeper}" + f",\n{deeper}".join(entries) + f"\n{indent}}}"
    if not any(isinstance(each, dict | list | tuple) for each in value):
        return line  # numbers or names: however many, the page wraps them
    return f"[\n{deeper}" + f",\n{deeper}".join(readable(each, deeper) for each in value) + f"\n{indent}]"
