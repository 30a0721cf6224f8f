"""What the project promises before any of its parts runs: light, consistent, and nobody's secrets in it."""

from __future__ import annotations

import importlib
import json
import pkgutil
import re
import subprocess
import sys
import tomllib
from importlib import metadata
from pathlib import Path

import pytest

import pellucid

ROOT = Path(__file__).resolve().parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
BASE_ROOMS = ("errors", "kv", "plan", "view")

SECRETS = re.compile(
    r"-----BEGIN [A-Z ]*PRIVATE KEY|AKIA[0-9A-Z]{16}|gh[pousr]_[A-Za-z0-9]{36}|hf_[A-Za-z0-9]{30}|sk-[A-Za-z0-9_-]{32}"
)
HOME_PATHS = re.compile(r"(?:/home|/Users)/[a-z]\w*|/roo[t]/")


def newly_imported(statement: str) -> set[str]:
    """Names of the modules that ``statement`` brings into a fresh interpreter."""
    code = (
        f"import sys, json; before = set(sys.modules); {statement}; print(json.dumps(list(set(sys.modules) - before)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(json.loads(done.stdout))


def third_party(modules: set[str]) -> set[str]:
    """Distributions, as pip names them, that ``modules`` belong to, Pellucid and the standard library apart."""
    outside = {name.partition(".")[0] for name in modules} - set(sys.stdlib_module_names) - {"pellucid"}
    owners = metadata.packages_distributions()
    return {canonical(owners[top][0]) if top in owners else top for top in outside}


def canonical(distribution: str) -> str:
    return re.sub(r"[-_.]+", "-", distribution).lower()


def with_their_own(requirements: list[str]) -> set[str]:
    """The distributions that ``requirements`` name, and all that those need without an extra."""
    found: set[str] = set()
    while requirements:
        requirement = requirements.pop()
        name = canonical(re.match(r"[\w.-]+", requirement)[0])
        if name not in found and "extra ==" not in requirement:
            found.add(name)
            requirements += metadata.requires(name) or []
    return found


def rooms_of(package: str) -> list[str]:
    module = importlib.import_module(package)
    inner = pkgutil.walk_packages(getattr(module, "__path__", []), f"{package}.")
    return [package, *(found.name for found in inner)]


def test_importing_pellucid_brings_nothing_but_the_standard_library() -> None:
    modules = newly_imported("import pellucid")
    assert not third_party(modules)
    assert {name for name in modules if name.startswith("pellucid")} == {"pellucid"}


def test_the_base_package_needs_only_what_it_declares() -> None:
    """An installation without extras is usable: kv, plan, view and the command line (see pyproject.toml)."""
    modules = [name for room in BASE_ROOMS for name in rooms_of(f"pellucid.{room}")]
    imported = third_party(newly_imported(f"import {', '.join(modules)}, pellucid.cli"))
    assert imported <= with_their_own(list(PROJECT["dependencies"]))


@pytest.mark.parametrize("name", pellucid.__all__)
def test_every_public_name_resolves(name: str) -> None:
    assert getattr(pellucid, name).__doc__


def test_one_version_everywhere() -> None:
    newest = re.search(r"^## (\S+)", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert newest is not None
    assert {PROJECT["version"], pellucid.__version__, newest[1]} == {metadata.version("pellucid")}


def test_no_file_holds_a_secret_or_somebodys_path() -> None:
    listing = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True)
    if listing.returncode:
        pytest.skip("not a git checkout")
    offenders = []
    for name in filter(None, listing.stdout.split("\0")):
        text = (ROOT / name).read_text(errors="replace") if (ROOT / name).is_file() else ""
        found = SECRETS.search(text) or HOME_PATHS.search(text)
        if found or str(ROOT) in text:
            offenders.append((name, found[0] if found else str(ROOT)))
    assert not offenders
