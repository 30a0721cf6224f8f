"""vLLM's own options from a command line, read by vLLM's own parser."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any, NoReturn

from pellucid.errors import ConfigError


def read_options(arguments: Any, parser: Any, words: Sequence[str]) -> dict[str, Any]:
    """Those of vLLM's options that are among ``words``, and no others: a default is not asked for.

    ``arguments`` is vLLM's ``EngineArgs``, ``parser`` a fresh parser of vLLM's kind. Raises `ConfigError` with
    vLLM's words for an option that it does not have or a value that it does not take.
    """

    def refuse(message: str) -> NoReturn:
        raise ConfigError(f"vLLM refuses its options: {message}")

    parser.error = refuse
    arguments.add_cli_args(parser)
    unset = object()
    names = [name for name in vars(parser.parse_args([])) if hasattr(arguments, name)]
    read = vars(parser.parse_args(list(words), argparse.Namespace(**dict.fromkeys(names, unset))))
    return {name: read[name] for name in names if read[name] is not unset}
