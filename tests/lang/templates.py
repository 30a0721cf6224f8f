"""The templates of the source, found by reading it."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from string import Formatter

import pellucid

SOURCE = Path(pellucid.__file__).parent


def calls() -> Iterator[tuple[str, ast.Call]]:
    """Every call of `pellucid.lang.say` with the file and line where it stands."""
    for path in sorted(SOURCE.rglob("*.py")):
        nodes = list(ast.walk(ast.parse(path.read_text(encoding="utf-8"))))
        if not any(_imports_say(node) for node in nodes):
            continue
        for node in nodes:
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "say":
                yield f"{path.relative_to(SOURCE)}:{node.lineno}", node


def _imports_say(node: ast.AST) -> bool:
    if not isinstance(node, ast.ImportFrom) or not (node.module or "").startswith("pellucid.lang"):
        return False
    return any(alias.name == "say" for alias in node.names)


def templates() -> list[str]:
    """The literal templates, in the order of the source, each once."""
    found = (call.args[0].value for _, call in calls() if isinstance(call.args[0], ast.Constant))
    return list(dict.fromkeys(template for template in found if isinstance(template, str)))


def fields(template: str) -> list[tuple[str, str, str]]:
    """Name, conversion and format of every placeholder, sorted."""
    parsed = Formatter().parse(template)
    return sorted((name, conversion or "", spec or "") for _, name, spec, conversion in parsed if name is not None)


def literals(template: str) -> str:
    """What stands outside the placeholders."""
    return "".join(text for text, *_ in Formatter().parse(template))
