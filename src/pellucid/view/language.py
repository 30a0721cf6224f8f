"""The language that a command draws in."""

from __future__ import annotations

import argparse
import sys

from pellucid.errors import ConfigError
from pellucid.lang import LANGUAGES, preferred_language, say, told


def add_language(parser: argparse.ArgumentParser) -> None:
    """``--lang``; `language` reads it back."""
    parser.add_argument(
        "--lang", choices=LANGUAGES, help="language of the sentences (as $LANG has it, and English with --json)"
    )


def language(arguments: argparse.Namespace) -> str:
    """The language that was asked for; else a reader's is that of the environment, and a program's English.

    Raises `ConfigError` if stdout cannot write what was asked for; what only the environment prefers becomes English.
    """
    asked: str = arguments.lang or ("en" if arguments.json else preferred_language())
    encoding = sys.stdout.encoding or "utf-8"
    try:
        told(say("blocks"), asked).encode(encoding)
    except UnicodeEncodeError:
        if arguments.lang is None:
            return "en"
        raise ConfigError(
            f"stdout is written in {encoding}, which has no letters for --lang {asked}; set PYTHONIOENCODING=utf-8."
        ) from None
    return asked
