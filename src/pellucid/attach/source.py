"""What the source of an installed vLLM has of the names that observing needs: read, not run."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from pellucid.attach.layout import NEEDED, Finding

CLASSES = {
    "scheduler": ("v1/core/sched/scheduler.py", "Scheduler"),
    "KV cache manager": ("v1/core/kv_cache_manager.py", "KVCacheManager"),
    "block pool": ("v1/core/block_pool.py", "BlockPool"),
    "free queue": ("v1/core/kv_cache_utils.py", "FreeKVCacheBlockQueue"),
    "block": ("v1/core/kv_cache_utils.py", "KVCacheBlock"),
}
"""Where the objects of `NEEDED` come from, in every version since 0.9.2."""


def read(folder: Path) -> list[Finding]:
    """One finding for each class, of the vLLM package in ``folder``."""
    return [_look(folder, what, file, name) for what, (file, name) in CLASSES.items()]


def _look(folder: Path, what: str, file: str, name: str) -> Finding:
    route = f"vllm/{file}"
    try:
        tree = ast.parse((folder / file).read_text(encoding="utf-8"))
    except (OSError, SyntaxError, ValueError) as error:
        return Finding(what, route, False, f"cannot be read: {error}")
    for node in tree.body:
        if isinstance(node, ast.ClassDef) and node.name == name:
            has = set(_names(node))
            missing = [each for each in NEEDED[what] if each not in has]
            return Finding(what, route, not missing, f"{name} has {'no ' + ', '.join(missing) if missing else 'all'}")
    return Finding(what, route, False, f"there is no class {name}")


def _names(kind: ast.ClassDef) -> Iterator[str]:
    """Its methods, its fields, and whatever it sets on itself."""
    for node in ast.walk(kind):
        match node:
            case ast.FunctionDef(name=name) | ast.AnnAssign(target=ast.Name(id=name)):
                yield name
            case ast.Attribute(value=ast.Name(id="self"), attr=name, ctx=ast.Store()):
                yield name
