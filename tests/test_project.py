"""What the project promises before any of its parts runs: light, consistent, and nobody's secrets in it."""

from __future__ import annotations

import importlib
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
BASE_ROOMS = ("errors", "kv", "lang", "notebook", "plan", "stream", "view", "watch")

SECRETS = re.compile(
    r"-----BEGIN [A-Z ]*PRIVATE KEY|AKIA[0-9A-Z]{16}|gh[pousr]_[A-Za-z0-9]{36}|hf_[A-Za-z0-9]{30}|sk-[A-Za-z0-9_-]{32}"
)
HOME_PATHS = re.compile(r"(?:/home|/Users)/[a-z]\w*|/roo[t]/")


def in_fresh_interpreter(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


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


def left_out_of_the_base() -> list[str]:
    """Importable names that are here, but not in an installation of the base package alone."""
    base = with_their_own(["pellucid"])
    owners = metadata.packages_distributions()
    return [name for name, distributions in owners.items() if not base & set(map(canonical, distributions))]


def rooms_of(package: str) -> list[str]:
    module = importlib.import_module(package)
    inner = pkgutil.walk_packages(getattr(module, "__path__", []), f"{package}.")
    return [package, *(found.name for found in inner)]


def test_importing_pellucid_brings_nothing_but_the_standard_library() -> None:
    code = "import sys; before = set(sys.modules); import pellucid; print(*(set(sys.modules) - before))"
    packages = {name.partition(".")[0] for name in in_fresh_interpreter(code).split()}
    assert packages - sys.stdlib_module_names == {"pellucid"}


def test_the_base_package_works_without_any_extra() -> None:
    """kv, plan, view and the command line need no more than pyproject.toml's dependencies."""
    absent = left_out_of_the_base()
    assert {"torch", "numpy"} <= set(absent)
    modules = [name for room in BASE_ROOMS for name in rooms_of(f"pellucid.{room}")]
    hide = f"import sys; sys.modules.update(dict.fromkeys({absent!r}))"  # None there makes an import fail
    in_fresh_interpreter(f"{hide}; import {', '.join(modules)}, pellucid.cli")


@pytest.mark.parametrize(
    "use",
    ["import pellucid; pellucid.LLM", "from pellucid.cli import main; sys.exit(main(['prove', '--model', 'tiny']))"],
)
def test_without_the_engine_extra_it_says_what_to_install(use: str) -> None:
    hide = f"import sys; sys.modules.update(dict.fromkeys({left_out_of_the_base()!r}))"
    done = subprocess.run([sys.executable, "-c", f"{hide}; {use}"], capture_output=True, text=True)
    assert done.returncode != 0
    assert "is not installed; run: pip install 'pellucid[engine]'." in done.stderr.strip().splitlines()[-1]


@pytest.mark.parametrize("name", pellucid.__all__)
def test_every_public_name_resolves(name: str) -> None:
    assert getattr(pellucid, name).__doc__


def test_one_version_everywhere() -> None:
    newest = re.search(r"^## (\d\S*)", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
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
