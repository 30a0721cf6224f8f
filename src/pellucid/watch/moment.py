"""A moment of a recording as it is written on a command line: a step, a time or a percentage."""

from __future__ import annotations

import re
from typing import NamedTuple

from pellucid.errors import ConfigError

CLOCK = re.compile(r"(?:(\d+):)?(\d+):(\d+(?:\.\d+)?)")
SECONDS = re.compile(r"(\d+(?:\.\d+)?)s")
SHARE = re.compile(r"(\d+(?:\.\d+)?)%")


class Moment(NamedTuple):
    """One of the three is not None: an engine step, seconds from the start, or a share of the recording (0 to 1)."""

    step: int | None = None
    seconds: float | None = None
    share: float | None = None


def parse_moment(text: str) -> Moment:
    """``120`` is a step, ``41s`` and ``1:30`` are times from the start, ``50%`` is a share. Raises `ConfigError`."""
    if text.isdecimal() and text.isascii():
        return Moment(step=int(text))
    if found := SECONDS.fullmatch(text):
        return Moment(seconds=float(found[1]))
    if found := CLOCK.fullmatch(text):
        hours, minutes, seconds = found.groups()
        return Moment(seconds=int(hours or 0) * 3600 + int(minutes) * 60 + float(seconds))
    if (found := SHARE.fullmatch(text)) and float(found[1]) <= 100:
        return Moment(share=float(found[1]) / 100)
    raise ConfigError(f"--at {text} is no moment; write a step (120), a time (41s or 1:30) or a percentage (50%).")
