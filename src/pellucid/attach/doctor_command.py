"""``pellucid doctor``: what there is to be observed here, and what stands in the way.

What it says stays English, as it is quoted in bug reports.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import textwrap
from collections.abc import Iterator, Sequence
from pathlib import Path

from pellucid import __version__
from pellucid.attach import finder, installation, plugin, source, trial
from pellucid.attach.layout import Finding
from pellucid.errors import PellucidError
from pellucid.stream.places import folder, places

TRIAL_S = 600
MOST_COLUMNS = 80


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of ``pellucid doctor``."""
    parser.add_argument("--json", action="store_true", help="one JSON object")
    parser.add_argument("--model", help="start a vLLM with this model, in a process of its own, and try to observe it")
    parser.add_argument("args", nargs="*", metavar="ARGS", help="after --, any of vLLM's engine arguments for that")


def main(arguments: argparse.Namespace) -> int:
    """Say it; returns 0 if the vLLM that is here can be observed, as far as was tried, else 1."""
    vllm = _vllm_folder()
    environment = dict(_environment(vllm))
    routes = list(map(str, source.read(vllm))) if vllm else []
    tried = _try(arguments.model, arguments.args) if arguments.model and vllm else []
    observable = vllm is not None and all(line.startswith("works") for line in (*routes, *tried))
    if arguments.json:
        facts = {"environment": environment, "source": routes, "tried": tried, "observable": observable}
        print(json.dumps({"pellucid": __version__, **facts}))
    else:
        _print([f"{what}: {text}" for what, text in environment.items()])
        _print(routes, "In the source of this vLLM:")
        _print(tried, "On a vLLM that was started:")
        if vllm and not arguments.model:
            _print(["pellucid doctor --model MODEL"], "To see it on a running one:")
    return int(not observable)


def _vllm_folder() -> Path | None:
    """The package's folder; nothing of it is imported."""
    found = importlib.util.find_spec("vllm")
    return Path(found.submodule_search_locations[0]) if found and found.submodule_search_locations else None


def _environment(vllm: Path | None) -> Iterator[tuple[str, str]]:
    """What is here, and what vLLM would do with it."""
    yield "Pellucid", f"{__version__}, with Python {sys.version.split()[0]} in {sys.prefix}"
    if vllm is None:
        yield "vLLM", "none here; to observe one, install Pellucid where it is, and run that environment's pellucid"
    else:
        version = finder.version()
        tested = "on which Pellucid was tested" if finder.is_tested(version) else "on which Pellucid was NOT tested"
        yield "vLLM", f"{version}, {tested}, in {vllm}"
        yield "plugin", _plugin()
        yield plugin.VARIABLE, _variable()
    yield "engines", _engines()


def _plugin() -> str:
    barred = not installation.is_let_in(os.environ)
    if not installation.is_registered():
        return "NOT registered here, so vLLM does not find it: install Pellucid into this environment"
    if barred:
        return (
            f"registered, and barred by {installation.PLUGINS}={os.environ[installation.PLUGINS]}: add pellucid to it, "
            "or start with `pellucid vllm serve`, which does"
        )
    return "registered, and let in: vLLM calls it in each of its processes"


def _variable() -> str:
    if plugin.wanted():
        return "set: a vLLM that is started from here is observed"
    return "not set: a vLLM that is started from here is observed only if `pellucid vllm serve` starts it"


def _engines() -> str:
    """Those that can be watched now."""
    try:
        found = [place.watched for place in places()]
    except PellucidError as error:
        return str(error)
    told = [f"process {each.pid}, rank {each.rank}: {each.engine} with {each.model}" for each in found]
    return "; ".join(told) or f"none answers in {folder()}"


def _try(model: str, args: Sequence[str]) -> list[str]:
    """Findings on a vLLM in a process of its own, which may end as it will."""
    command = [sys.executable, "-m", trial.__name__, model, *args]
    try:
        done = subprocess.run(
            command, env=trial.ENVIRONMENT | os.environ, capture_output=True, text=True, timeout=TRIAL_S
        )
    except subprocess.TimeoutExpired:
        return [_failed(f"it did not start within {TRIAL_S} s")]
    lines = done.stdout.splitlines()
    if done.returncode == 0 and lines:
        return list(map(str, json.loads(lines[-1])))
    last = (done.stderr.strip().splitlines() or [f"it ended with status {done.returncode}"])[-1]
    return [_failed(last.strip())]


def _failed(why: str) -> str:
    return str(Finding("starting one", f"python -m {trial.__name__}", False, why))


def _print(lines: Sequence[str], title: str = "") -> None:
    """Under its title, a paragraph each, no wider than a terminal."""
    width = min(MOST_COLUMNS, shutil.get_terminal_size((MOST_COLUMNS, 24)).columns)
    if lines and title:
        print(f"\n{title}")
    for line in lines:
        print(textwrap.fill(line, width, subsequent_indent="    ", break_on_hyphens=False))
