"""``pellucid vllm``: this environment's own ``vllm`` command, with all its arguments, so that it can be watched."""

from __future__ import annotations

import argparse
import importlib.util
import os
import sys
from collections.abc import Mapping
from pathlib import Path

from pellucid.attach import installation
from pellucid.attach.plugin import VARIABLE
from pellucid.errors import ConfigError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Whatever stands after ``pellucid vllm`` is vLLM's."""
    parser.add_argument("args", nargs=argparse.REMAINDER, metavar="ARGS", help="what vllm gets as its arguments")


def main(arguments: argparse.Namespace) -> int:
    """Become vLLM; does not return. Raises `ConfigError` if there is none, or if it would not find Pellucid."""
    command = vllm_command()
    if not installation.is_registered():
        raise ConfigError(
            f"vLLM would not find Pellucid, as it is not installed in {sys.prefix}; install it there, "
            f"with `{sys.executable} -m pip install pellucid`."
        )
    environment = observed(os.environ)
    if (plugins := environment.get(installation.PLUGINS)) != os.environ.get(installation.PLUGINS):
        print(f"pellucid: vLLM is started with {installation.PLUGINS}={plugins}, to let Pellucid in.", file=sys.stderr)
    sys.stderr.flush()
    os.execve(command[0], [*command, *arguments.args], environment)


def vllm_command() -> list[str]:
    """How to start the vLLM of this environment. Raises `ConfigError` if there is none."""
    if importlib.util.find_spec("vllm") is None:
        raise ConfigError(
            f"there is no vLLM in {sys.prefix}; install Pellucid where vLLM is, and start it with that environment's "
            "own pellucid."
        )
    script = Path(sys.executable).with_name("vllm")
    return [str(script)] if script.is_file() else [sys.executable, "-m", "vllm.entrypoints.cli.main"]


def observed(environment: Mapping[str, str]) -> dict[str, str]:
    """``environment`` with what lets Pellucid observe a vLLM in it."""
    result = {**environment, VARIABLE: "1"}
    if not installation.is_let_in(environment):
        result[installation.PLUGINS] = ",".join(filter(None, (environment[installation.PLUGINS], "pellucid")))
    return result
